# cuda_architectures(<flags> <names> <least>): nvcc's -gencode options for MIXED_GEMM_CUDA_ARCHS (cache
# variable), else $TORCH_CUDA_ARCH_LIST, else the default. Both spellings are read: "8.0;9.0a",
# separated by ';', ',' or blanks, and "80;90a".
#
# Only those from <least> (80, 89) on; the flags are empty when there are none.
#
# Machine code alone: "+PTX" is read and left out. A driver would make code for a GPU that this list
# does not name out of the PTX of another one, which nobody has looked at; such a GPU is refused in
# words instead (why_not_device in csrc/core/device.cpp).
#
# One front-end pass, for compute_<least>, serves every sm_8x cubin (code = [sm_80,sm_86,sm_89]):
# parsing the CUTLASS headers is much of a kernel's compile time, and our sm_8x code does not differ
# by __CUDA_ARCH__. Neither does it from 9.0 on, so that a pass for compute_90 serves the sm_10x and
# sm_12x cubins. Architectures with a letter, as 9.0a, are one pass each.
#
# By default one machine code serves a whole generation: that for 8.0 runs on 8.6 and 8.9 as it is.
# What ptxas makes for those differs little (756,712 instructions for 756,848 in 380 kernels; the
# same mix of them in 225 kernels for 8.6, in 12 for 8.9) and took a fifth of the compile time. How
# much slower the code for 8.0 is there has not been measured. fp8 begins with 8.9 and has its code.
# TORCH_CUDA_ARCH_LIST="8.0;8.6;8.9;9.0" makes code for each.
#
# 10.0 and 12.0 have the families on mma.sync; their code has been read (tests/sass) and not run.
set(MIXED_GEMM_DEFAULT_CUDA_ARCHS "8.0;8.6;8.9;9.0")
if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)  # the first that knows them
  string(APPEND MIXED_GEMM_DEFAULT_CUDA_ARCHS ";10.0;12.0")
endif()

function(cuda_architectures flags_variable names_variable least)
  set(archs "${MIXED_GEMM_CUDA_ARCHS}")
  if(NOT archs)
    set(archs "$ENV{TORCH_CUDA_ARCH_LIST}")
  endif()
  set(one_code_per_generation OFF)
  if(NOT archs)
    set(archs "${MIXED_GEMM_DEFAULT_CUDA_ARCHS}")
    set(one_code_per_generation ON)
  endif()
  string(REGEX REPLACE "[ ,;]+" ";" archs "${archs}")

  set(names "")
  set(passes "")
  set(generations "")
  foreach(entry IN LISTS archs)
    if(NOT entry MATCHES "^([0-9]+)\\.?([0-9])([af]?)(\\+PTX)?$")
      message(FATAL_ERROR "CUDA architecture must look like 8.0, 90a or 12.0, got '${entry}'")
    endif()
    set(generation "${CMAKE_MATCH_1}")
    set(letter "${CMAKE_MATCH_3}")
    set(number "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
    if(generation LESS 8)
      message(FATAL_ERROR "mixed_gemm needs sm_80 or newer (cp.async, bf16), got '${entry}'")
    endif()
    if(CMAKE_MATCH_4)
      message(STATUS "mixed_gemm: ${entry}: machine code alone, without PTX")
    endif()
    if(number LESS least)
      continue()
    endif()
    if(letter)
      set(pass "${number}${letter}")
    elseif(generation EQUAL 8)
      set(pass ${least})
    else()
      set(pass 90)
    endif()
    list(APPEND names "${number}${letter}")
    if(one_code_per_generation AND generation IN_LIST generations)
      continue()
    endif()
    list(APPEND generations ${generation})
    list(APPEND passes ${pass})
    list(APPEND codes_${pass} "sm_${number}${letter}")
  endforeach()

  list(REMOVE_DUPLICATES passes)
  set(flags "")
  foreach(pass IN LISTS passes)
    list(REMOVE_DUPLICATES codes_${pass})
    list(JOIN codes_${pass} "," codes)
    list(APPEND flags "--generate-code=arch=compute_${pass},code=[${codes}]")
  endforeach()
  set(${flags_variable} "${flags}" PARENT_SCOPE)
  set(${names_variable} "${names}" PARENT_SCOPE)
endfunction()
