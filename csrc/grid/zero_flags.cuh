// Flags of stream-K (grid/tile_gemm.cuh), zeroed. A kernel and not cudaMemsetAsync: behind that
// nobody starts early, nor does it start early itself.
#pragma once
#include "grid/early_start.cuh"
#include "grid/grid.h"

namespace mixed_gemm {

__global__ inline void zero_flags_kernel(const __grid_constant__ ZeroFlagsArgs p) {
  // First: the GEMM waits for all of this kernel, and so for whom this one waits for.
  let_kernel_after_start();
  wait_for_kernel_before();
  for (int i = static_cast<int>(threadIdx.x); i < p.count; i += static_cast<int>(blockDim.x)) {
    p.flags[i] = 0;
  }
}

}  // namespace mixed_gemm
