# Builds of the host code that end at the first fault a sanitizer sees (tools/sanitize_cpu.py runs
# the tests under them). They need no nvcc, and no folder that holds another build.
function(sanitize_host_code sanitizers)
  if(NOT MIXED_GEMM_CUDA STREQUAL "OFF")
    message(FATAL_ERROR "MIXED_GEMM_SANITIZE=${sanitizers} checks host code: it needs "
                        "-DMIXED_GEMM_CUDA=OFF, and a build folder of its own")
  endif()
  if(sanitizers MATCHES "undefined")
    # GCC's `undefined` leaves out floats that become integers which cannot hold them.
    string(APPEND sanitizers ",float-cast-overflow")
  endif()
  # -O1 keeps what the optimizer would prove away, and lines for the report. The assertions of the
  # standard library find .front() of nothing and an index behind the end of a vector's size.
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer
                      -g1 -O1)
  add_compile_definitions(_GLIBCXX_ASSERTIONS=1)
  add_link_options(-fsanitize=${sanitizers})
  # Long unrolled kernels, of which each access through an intrinsic may be unaligned: with these
  # checks GCC 12 takes 100 s a file, without them 6.
  if(sanitizers MATCHES "address")
    set(sanitize_vector_flags -fno-sanitize-address-use-after-scope
        -fno-sanitize=null,alignment,object-size,pointer-overflow PARENT_SCOPE)
  endif()
endfunction()
