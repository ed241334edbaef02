# cuda_architectures(<flags> <names> <least>): nvcc's -gencode options for MIXED_GEMM_CUDA_ARCHS (cache
# variable), else $TORCH_CUDA_ARCH_LIST, else the default. Both spellings are read: "8.0;9.0a+PTX",
# separated by ';', ',' or blanks, and "80;90a".
#
# Only those from <least> (80, 89) on; the flags are empty when there are none.
#
# One front-end pass, for compute_<least>, serves every sm_8x cubin (code = [sm_80,sm_86,sm_89]):
# parsing the CUTLASS headers is much of a kernel's compile time, and our sm_8x code does not differ
# by __CUDA_ARCH__. Architectures of other families are one pass each.
#
# By default one machine code serves a whole generation: that for 8.0 runs on 8.6 and 8.9 as it is.
# What ptxas makes for those differs little (756,712 instructions for 756,848 in 380 kernels; the
# same mix of them in 225 kernels for 8.6, in 12 for 8.9) and took a fifth of the compile time. How
# much slower the code for 8.0 is there has not been measured. fp8 begins with 8.9 and has its code.
# TORCH_CUDA_ARCH_LIST="8.0;8.6;8.9;9.0+PTX" makes code for each.
set(MIXED_GEMM_DEFAULT_CUDA_ARCHS "8.0;8.6;8.9;9.0+PTX")

function(cuda_architectures flags_variable names_variable least)
  set(archs "${MIXED_GEMM_CUDA_ARCHS}")
  if(NOT archs)
    set(archs "$ENV{TORCH_CUDA_ARCH_LIST}")
  endif()
  set(one_code_per_pass OFF)
  if(NOT archs)
    set(archs "${MIXED_GEMM_DEFAULT_CUDA_ARCHS}")
    set(one_code_per_pass ON)
  endif()
  string(REGEX REPLACE "[ ,;]+" ";" archs "${archs}")

  set(names "")
  set(passes "")
  foreach(entry IN LISTS archs)
    if(NOT entry MATCHES "^([0-9]+)\\.?([0-9])([af]?)(\\+PTX)?$")
      message(FATAL_ERROR "CUDA architecture must look like 8.0, 90a or 9.0+PTX, got '${entry}'")
    endif()
    set(name "${CMAKE_MATCH_1}${CMAKE_MATCH_2}${CMAKE_MATCH_3}")
    set(ptx "${CMAKE_MATCH_4}")
    if(CMAKE_MATCH_1 LESS 8)
      message(FATAL_ERROR "mixed_gemm needs sm_80 or newer (cp.async, bf16), got '${entry}'")
    endif()
    if("${CMAKE_MATCH_1}${CMAKE_MATCH_2}" LESS least)
      continue()
    endif()
    set(pass ${name})
    if(name MATCHES "^8[0-9]$")
      set(pass ${least})
    endif()
    list(APPEND names "${name}${ptx}")
    if(one_code_per_pass AND pass IN_LIST passes)
      continue()
    endif()
    list(APPEND passes ${pass})
    list(APPEND codes_${pass} sm_${name})
    if(ptx)
      list(APPEND codes_${pass} compute_${pass})
    endif()
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
