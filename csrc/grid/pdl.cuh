// Programmatic dependent launch (PDL, sm_90): a kernel launched with the attribute may be set up
// while the one before it drains; it calls pdl_wait() before it reads anything.
//
// The second kernel of a parallel split is launched so as well. The first one launches it as soon
// as all its own blocks run and have waited, so the second takes no place from them, and may read
// at once what the first one may.
//
// Behind our own kernels that is 0.4 to 0.9 us less; behind a kernel that never launches its
// dependents, 0 to 0.6 us more, by machine (a decoder layer with such kernels between the GEMMs:
// 0.99 to 1.01 of its time, 0.98 at 64 rows).
//
// Weights do not change from call to call, so they could be requested before the wait (the two
// together saved 0 to 0.6 us). But any kernel before may have written them, and one that launches
// its dependents before it has waited itself, as kernels of other libraries may, would let this one
// read them too early.
#pragma once

namespace mixed_gemm {

// Returns when the kernel before has ended and what it wrote can be read.
__device__ inline void pdl_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Computes these addresses before the wait. ptxas computes them behind it, unless something that it
// does not move needs them, here a store that never happens: all are even. The first loads behind
// the wait must not be ld.global.nc then, which ptxas would move in front of it (tests/sass looks).
__device__ inline void make_before_wait(void* shared, const void* a, const void* b, const void* c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile(
      "{ .reg .pred p; .reg .b64 t; and.b64 t, %0, %1; and.b64 t, t, %2; and.b64 t, t, 1;"
      " setp.ne.b64 p, t, 0; @p st.shared.b64 [%3], %0; }" ::"l"(a),
      "l"(b), "l"(c), "r"(target)
      : "memory");
#endif
}

// Does the same for numbers that are not negative.
__device__ inline void make_before_wait(void* shared, int a, int b, int c, int d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const auto target = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile(
      "{ .reg .pred p; .reg .b32 t; or.b32 t, %0, %1; or.b32 t, t, %2; or.b32 t, t, %3;"
      " setp.lt.s32 p, t, 0; @p st.shared.b32 [%4], t; }" ::"r"(a),
      "r"(b), "r"(c), "r"(d), "r"(target)
      : "memory");
#endif
}

// Lets the kernel behind be set up once every block of this one has called it or ended.
__device__ inline void pdl_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace mixed_gemm
