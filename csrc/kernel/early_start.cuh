// Programmatic dependent launch (sm_90): a kernel launched with the attribute may start while the
// one before it drains, read what that one cannot have written, and wait for it before the rest.
//
// Why weights may be read before the wait. The kernel before lets its successor start only after
// its own wait, when all earlier kernels are complete and their writes visible; one that never
// says so is complete before the successor starts. So a successor races with one kernel at most,
// one of ours, and that writes activations, not packed weights.
#pragma once

namespace mixed_gemm {

__device__ inline void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_kernel_after_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace mixed_gemm
