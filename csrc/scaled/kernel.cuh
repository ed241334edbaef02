// Device entries of the scaled GEMMs: by tiles, and the second kernel of a parallel split.
#pragma once
#include "epilogue/scaled_output.cuh"
#include "epilogue/store_value.cuh"
#include "grid/pdl.cuh"
#include "grid/split_partials.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/direct_mainloop.cuh"
#include "scaled/config.cuh"

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

// Reduces the slices' sums in order. One thread has kReducedColumns columns of a row.
constexpr int kReducedColumns = 4;

template <typename SumType>
struct ScaledReduction {
  ScaledEpilogueArgs epilogue;
  const SumType* partials;  // [slices, m, partial_stride]
  int64_t partial_stride;   // a multiple of 8
  int slices, m, n;
  void* d;  // [m, n] of epilogue.out_type, contiguous

  // The tree reads what was written before the first kernel began; that one wrote partial sums.
  template <typename Tree>
  __device__ void run(const Tree& tree, int row, int column) const {
    const typename Tree::Row at_row = tree.row(row);
    typename Tree::Column columns[kReducedColumns];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kReducedColumns; ++i) columns[i] = tree.column(min(column + i, n - 1));
    pdl_wait();
    pdl_launch_dependents();
    cutlass::Array<SumType, kReducedColumns> sums;
    sums.clear();
    const SumType* source = partials + row * partial_stride + column;
    const int existing = n - column;  // nobody wrote what is behind a row's end
    const auto load = [&](const SumType* from, auto& values) {
      if (existing >= kReducedColumns) {
        load_partials(from, values);
      } else {
        load_partials(from, existing, values);
      }
    };
    add_partials<8>(source, m * partial_stride, slices, sums, load);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kReducedColumns; ++i) {
      if (column + i >= n) continue;
      store_value(d, epilogue.out_type, static_cast<int64_t>(row) * n + column + i,
                  tree(sums[i], at_row, columns[i]));
    }
  }
};

template <typename SumType>
__global__ void scaled_reduce_kernel(const __grid_constant__ ScaledReduction<SumType> reduction) {
  const int per_row = (reduction.n + kReducedColumns - 1) / kReducedColumns;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int row = static_cast<int>(index / per_row);
  const int column = static_cast<int>(index % per_row) * kReducedColumns;
  if (row >= reduction.m) return;
  const auto run = [&](const auto& tree) { reduction.run(tree, row, column); };
  if constexpr (std::is_same_v<SumType, float>) {
    if (reduction.epilogue.kind == EpilogueKind::kBlocks) {
      return with_blocks_epilogue(reduction.epilogue, run);
    }
  }
  with_epilogue<SumType>(reduction.epilogue, run);
}

}  // namespace mixed_gemm
