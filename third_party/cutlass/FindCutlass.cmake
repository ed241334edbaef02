# CUTLASS headers: sets Cutlass_INCLUDE_DIR. README.md beside this file gives the order of places.
include(FindInPython)

set(_cutlass_version 4.2.0.0)
set(_cutlass_sha256 f9599ada45c7bcb6bf53f7d3f0a7d154183e53451c01bfa59eecd37dd4a693f6)
set(_cutlass_fetched "${CMAKE_BINARY_DIR}/_deps")
set(CUTLASS_DIR "" CACHE PATH "CUTLASS checkout, or its include folder")

# Looks in `ARGN` for the headers, either directly or under include/.
macro(_cutlass_look)
  find_path(Cutlass_INCLUDE_DIR cutlass/cutlass.h HINTS ${ARGN} PATH_SUFFIXES include
            NO_DEFAULT_PATH NO_CACHE)
endmacro()

macro(_cutlass_fetch)
  message(STATUS "Fetching the headers of nvidia-cutlass ${_cutlass_version} (6.4 MB)")
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -I -m pip download -q --no-deps --only-binary=:all:
            -d "${_cutlass_fetched}" nvidia-cutlass==${_cutlass_version}
    RESULT_VARIABLE _status)
  set(_wheel "${_cutlass_fetched}/nvidia_cutlass-${_cutlass_version}-py3-none-any.whl")
  if(_status EQUAL 0 AND EXISTS "${_wheel}")
    file(SHA256 "${_wheel}" _sha256)
    if(NOT _sha256 STREQUAL _cutlass_sha256)
      message(FATAL_ERROR "nvidia-cutlass ${_cutlass_version}: sha256 is ${_sha256}, "
                          "expected ${_cutlass_sha256}")
    endif()
    file(ARCHIVE_EXTRACT INPUT "${_wheel}" DESTINATION "${_cutlass_fetched}"
         PATTERNS "cutlass_library/source/include/*")
  endif()
endmacro()

set(_cutlass_named "${CUTLASS_DIR}" "$ENV{CUTLASS_DIR}")
list(REMOVE_ITEM _cutlass_named "")
if(_cutlass_named)
  _cutlass_look(${_cutlass_named})  # named by the user: nothing else may step in
else()
  _cutlass_look("${CMAKE_CURRENT_LIST_DIR}")
  if(NOT Cutlass_INCLUDE_DIR)
    find_in_python(cutlass _cutlass_package)
    _cutlass_look("${_cutlass_package}" "${_cutlass_fetched}/cutlass_library/source")
  endif()
  if(NOT Cutlass_INCLUDE_DIR)
    _cutlass_fetch()
    _cutlass_look("${_cutlass_fetched}/cutlass_library/source")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Cutlass
  REQUIRED_VARS Cutlass_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "
  set CUTLASS_DIR to a checkout of CUTLASS 4.2, or `pip install --no-deps nvidia-cutlass==4.2.0.0`,
  or build without CUDA kernels: MIXED_GEMM_CUDA=OFF.")
