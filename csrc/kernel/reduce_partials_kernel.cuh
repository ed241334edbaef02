// Second kernel of parallel split-K: adds the slices' fp32 partial sums in order and finishes the
// output. With one slice it finishes what a dense GEMM left in fp32, with none it writes the
// outputs of an empty K.
#pragma once
#include "epilogue/finish_output.cuh"
#include "kernel/early_start.cuh"

namespace mixed_gemm {

template <typename Element>
struct Reduction {
  OutputParams<Element> output;
  const float* partials;
  int64_t partial_stride;
  int slices;
  int64_t m;
};

template <typename Element>
__global__ void splitk_reduce_kernel(const __grid_constant__ Reduction<Element> p) {
  const int n = p.output.n;
  const int64_t accesses_per_row = ceil_div(n, kOutputsPerAccess);
  const int64_t access = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (access >= p.m * accesses_per_row) return;
  const int64_t row = access / accesses_per_row;
  const int column = static_cast<int>(access % accesses_per_row) * kOutputsPerAccess;
  const float* source = p.partials + row * p.partial_stride + column;
  // One by one in a dense GEMM's output of odd n, and where a row ends: behind it nobody wrote.
  const bool vectors = p.partial_stride % kOutputsPerAccess == 0 && column + kOutputsPerAccess <= n;
  cutlass::Array<float, kOutputsPerAccess> sums;
  sums.clear();
  wait_for_kernel_before();
  let_kernel_after_start();
#pragma unroll 4
  for (int slice = 0; slice < p.slices; ++slice, source += p.m * p.partial_stride) {
    cutlass::Array<float, kOutputsPerAccess> more;
    more.clear();
    if (vectors) {
      auto* quads = reinterpret_cast<float4*>(more.data());
      quads[0] = __ldcg(reinterpret_cast<const float4*>(source));
      quads[1] = __ldcg(reinterpret_cast<const float4*>(source) + 1);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOutputsPerAccess && column + i < n; ++i) more[i] = __ldcg(source + i);
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) sums[i] += more[i];
  }
  finish_output(p.output, row, column, sums);
}

}  // namespace mixed_gemm
