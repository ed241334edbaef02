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

using OutputSums = cutlass::Array<float, kOutputsPerAccess>;

// sums += 8 columns of each slice, in order; without kVectors those that exist, one by one. kBatch
// slices are requested together: one after the other, each waits for L2 (1.2 us for 8 of them).
template <int kBatch, bool kVectors>
__device__ void add_slices(const float* source, int64_t stride, int slices, int columns,
                           OutputSums& sums) {
  for (int first = 0; first < slices; first += kBatch, source += kBatch * stride) {
    OutputSums batch[kBatch];
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kBatch; ++s) {
      batch[s].clear();
      if (first + s >= slices) continue;
      if constexpr (kVectors) {
        const auto* from = reinterpret_cast<const float4*>(source + s * stride);
        auto* quads = reinterpret_cast<float4*>(batch[s].data());
        quads[0] = __ldcg(from);
        quads[1] = __ldcg(from + 1);
      } else {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kOutputsPerAccess; ++i) {
          if (i < columns) batch[s][i] = __ldcg(source + s * stride + i);
        }
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kBatch; ++s) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kOutputsPerAccess; ++i) sums[i] += batch[s][i];
    }
  }
}

template <typename Element>
__global__ void splitk_reduce_kernel(const __grid_constant__ Reduction<Element> p) {
  const int n = p.output.n;
  const int64_t accesses_per_row = ceil_div(n, kOutputsPerAccess);
  const int64_t access = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (access >= p.m * accesses_per_row) return;
  const int64_t row = access / accesses_per_row;
  const int column = static_cast<int>(access % accesses_per_row) * kOutputsPerAccess;
  const float* source = p.partials + row * p.partial_stride + column;
  const int64_t slice_stride = p.m * p.partial_stride;
  wait_for_kernel_before();
  let_kernel_after_start();
  const OutputColumns<Element> columns(p.output, column);
  OutputSums sums;
  sums.clear();
  // One by one in a dense GEMM's output of odd n, and where a row ends: behind it nobody wrote.
  if (p.partial_stride % kOutputsPerAccess != 0 || column + kOutputsPerAccess > n) {
    add_slices<4, false>(source, slice_stride, p.slices, n - column, sums);
  } else if (p.slices <= 2) {  // 0.15 us less than in a batch of 8
    add_slices<2, true>(source, slice_stride, p.slices, kOutputsPerAccess, sums);
  } else if (p.slices <= 4) {
    add_slices<4, true>(source, slice_stride, p.slices, kOutputsPerAccess, sums);
  } else {
    add_slices<8, true>(source, slice_stride, p.slices, kOutputsPerAccess, sums);
  }
  finish_output(p.output, columns, row, column, sums);
}

}  // namespace mixed_gemm
