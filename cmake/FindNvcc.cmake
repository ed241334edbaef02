# Sets CMAKE_CUDA_COMPILER before enable_language(CUDA), or leaves it empty. Order:
# -DCMAKE_CUDA_COMPILER, $CUDACXX, $CUDA_HOME, $CUDA_PATH, PATH, /usr/local/cuda, then the nvcc of
# PyPI (nvidia-cuda-nvcc) in the Python in use.
include(FindInPython)

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}")
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(_nvcc nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
               PATH_SUFFIXES bin NO_CACHE)
  if(NOT _nvcc)
    find_in_python(nvcc _nvcc)
  endif()
  set(CMAKE_CUDA_COMPILER "${_nvcc}")
endif()

if(CMAKE_CUDA_COMPILER)
  # The PyPI packages have lib/ where nvcc.profile says lib64/: the link test needs to be told.
  get_filename_component(_cuda_top "${CMAKE_CUDA_COMPILER}" DIRECTORY)
  get_filename_component(_cuda_top "${_cuda_top}" DIRECTORY)
  if(NOT EXISTS "${_cuda_top}/lib64" AND EXISTS "${_cuda_top}/lib/libcudart_static.a")
    string(APPEND CMAKE_CUDA_FLAGS " -L${_cuda_top}/lib")
    link_directories("${_cuda_top}/lib")
  endif()
endif()
