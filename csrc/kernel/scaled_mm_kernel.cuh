// Device entries of the scaled GEMMs: by tiles, and the second kernel of a parallel split.
#pragma once
#include "epilogue/scaled_output.cuh"
#include "kernel/tile_gemm.cuh"
#include "mainloop/direct_mainloop.cuh"
#include "mainloop/scaled_mm_config.cuh"

namespace mixed_gemm {

template <typename Config>
using ScaledMm = TileGemm<Config, DirectMainloop<Config>, ScaledOutput<typename Config::Sum>>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    scaled_mm_kernel(const __grid_constant__ typename ScaledMm<Config>::Params params) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  using Storage = typename ScaledMm<Config>::SharedStorage;
  ScaledMm<Config>::run(params, *reinterpret_cast<Storage*>(shared_bytes));
}

// Adds the slices' sums in order. One thread: kReducedColumns columns of a row.
constexpr int kReducedColumns = 4;

template <typename SumType>
__global__ void scaled_reduce_kernel(const ScaledEpilogueArgs epilogue, const SumType* partials,
                                     int64_t partial_stride, int slices, int m, int n, void* d) {
  const int per_row = (n + kReducedColumns - 1) / kReducedColumns;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = static_cast<int>(index / per_row);
  const int column = static_cast<int>(index % per_row) * kReducedColumns;
  if (row >= m) return;
  SumType sums[kReducedColumns] = {};
  const bool whole = column + kReducedColumns <= n;  // nobody wrote what is behind a row's end
  for (int slice = 0; slice < slices; ++slice) {
    const SumType* source =
        partials + (static_cast<int64_t>(slice) * m + row) * partial_stride + column;
    SumType more[kReducedColumns];
    if (whole) {
      reinterpret_cast<float4&>(more) = __ldcg(reinterpret_cast<const float4*>(source));
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kReducedColumns; ++i) more[i] = column + i < n ? __ldcg(source + i) : 0;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kReducedColumns; ++i) sums[i] += more[i];
  }
  float values[kReducedColumns];
  with_epilogue<SumType>(epilogue, [&](const auto& tree) {
    const auto at_row = tree.row(row);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kReducedColumns; ++i) {
      values[i] = tree(sums[i], at_row, tree.column(min(column + i, n - 1)));
    }
  });
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kReducedColumns; ++i) {
    if (column + i >= n) return;
    const int64_t at = static_cast<int64_t>(row) * n + column + i;
    if (epilogue.out_type == ElementType::kFloat16) {
      static_cast<cutlass::half_t*>(d)[at] = cutlass::half_t(values[i]);
    } else if (epilogue.out_type == ElementType::kBFloat16) {
      static_cast<cutlass::bfloat16_t*>(d)[at] = cutlass::bfloat16_t(values[i]);
    } else {
      static_cast<float*>(d)[at] = values[i];
    }
  }
}

}  // namespace mixed_gemm
