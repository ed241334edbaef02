// Zeroes the semaphores of stream-K (grid/tile_gemm.cuh). A kernel in place of cudaMemsetAsync,
// which neither is launched with PDL nor launches its dependents.
#pragma once
#include "grid/grid.h"
#include "grid/pdl.cuh"

namespace mixed_gemm {

__global__ inline void zero_flags_kernel(const __grid_constant__ ZeroFlagsArgs p) {
  // Before its own wait: the GEMM waits for all of this kernel, and so for whom this one waits for.
  pdl_launch_dependents();
  pdl_wait();
  for (int i = static_cast<int>(threadIdx.x); i < p.count; i += static_cast<int>(blockDim.x)) {
    p.flags[i] = 0;
  }
}

}  // namespace mixed_gemm
