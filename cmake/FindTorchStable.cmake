# The headers and libtorch.so of a torch >= 2.10, as target TorchStable::torch. TorchConfig.cmake is
# not used: in a CUDA wheel it enables the CUDA language, wants the whole toolkit and forces its own
# architecture flags on every target. The stable ABI needs an include folder and one library.
#
# Order: -DTorchStable_ROOT, $TORCH_ROOT (the folder `torch` itself), the Python in use.
include(FindInPython)

find_in_python(torch _torch_root)
foreach(_named IN ITEMS "$ENV{TORCH_ROOT}" "${TorchStable_ROOT}")
  if(_named)
    set(_torch_root "${_named}")
  endif()
endforeach()

# NO_CACHE: the environment of the previous `pip install` may be gone.
find_path(TorchStable_INCLUDE_DIR torch/csrc/stable/library.h
          HINTS "${_torch_root}/include" NO_DEFAULT_PATH NO_CACHE)
find_library(TorchStable_LIBRARY torch HINTS "${_torch_root}/lib" NO_DEFAULT_PATH NO_CACHE)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  TorchStable
  REQUIRED_VARS TorchStable_LIBRARY TorchStable_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "
  no torch >= 2.10 for ${Python_EXECUTABLE}.
  Install it first (CPU build: pip install torch --index-url https://download.pytorch.org/whl/cpu),
  or name one: TORCH_ROOT=/path/to/site-packages/torch.
  With uv, or another builder whose isolation hides torch: --no-build-isolation.")

if(TorchStable_FOUND AND NOT TARGET TorchStable::torch)
  get_filename_component(_torch_lib "${TorchStable_LIBRARY}" DIRECTORY)
  add_library(TorchStable::torch INTERFACE IMPORTED)
  target_include_directories(TorchStable::torch SYSTEM INTERFACE "${TorchStable_INCLUDE_DIR}")
  target_compile_definitions(TorchStable::torch
                             INTERFACE TORCH_TARGET_VERSION=0x020a000000000000ULL)
  # libtorch.so must stay in DT_NEEDED (Ubuntu's ld defaults to --as-needed): the weak CUDA shims
  # resolve to libtorch_cuda.so through it, and silently stay null without it. The other C shims
  # live in libtorch_cpu.so.
  target_link_options(
    TorchStable::torch INTERFACE
    "LINKER:--no-as-needed,${TorchStable_LIBRARY},--as-needed" "LINKER:--allow-shlib-undefined"
    "LINKER:-rpath-link,${_torch_lib}")
  target_link_libraries(TorchStable::torch INTERFACE "${_torch_lib}/libtorch_cpu.so")
endif()

# The same torch through its C++ interface, which only this very version of it has.
if(TorchStable_FOUND AND NOT TARGET TorchFull::torch)
  get_filename_component(_torch_package "${_torch_lib}" DIRECTORY)
  file(STRINGS "${_torch_package}/version.py" _torch_version REGEX "^__version__ = ")
  string(REGEX MATCH "'[^']+'" _torch_version "${_torch_version}")
  string(REPLACE "'" "" TorchFull_VERSION "${_torch_version}")
  add_library(TorchFull::torch INTERFACE IMPORTED)
  target_include_directories(TorchFull::torch SYSTEM INTERFACE
                             "${TorchStable_INCLUDE_DIR}"
                             "${TorchStable_INCLUDE_DIR}/torch/csrc/api/include")
  target_link_options(TorchFull::torch INTERFACE "LINKER:--allow-shlib-undefined"
                      "LINKER:-rpath-link,${_torch_lib}")
  target_link_libraries(TorchFull::torch INTERFACE "${_torch_lib}/libtorch_cpu.so"
                        "${_torch_lib}/libc10.so")
endif()
