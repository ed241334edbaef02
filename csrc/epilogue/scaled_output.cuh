// Stores the accumulators of a warp as scaled outputs of any float type, or as partial sums.
#pragma once
#include "epilogue/float_matrix.cuh"
#include "epilogue/scaled_epilogue.cuh"

namespace mixed_gemm {

// Octets of columns whose values are loaded together, where the sums of a warp of kMmaM x kMmaN mma
// tiles leave registers for them.
constexpr int octets_ahead(int mma_m, int mma_n) {
  return mma_m * mma_n > 16 ? 1 : mma_n < 4 ? mma_n : 4;
}

// Makes values of a lane's sums of a warp's tile. row, column: of the lane's first sum, as `tree`
// counts them. Sums behind the last row or column take the values of the last: never stored.
template <int kMmaM, int kMmaN, typename Tree, typename SumType>
__device__ void evaluate(const Tree& tree, const SumType* sums, int row, int column, int last_row,
                         int last_column, float* values) {
  constexpr int kAhead = octets_ahead(kMmaM, kMmaN);
  typename Tree::Row rows[2 * kMmaM];
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < 2 * kMmaM; ++i) {
    rows[i] = tree.row(min(row + 8 * i, last_row));
  }
  CUTLASS_PRAGMA_UNROLL
  for (int j0 = 0; j0 < kMmaN; j0 += kAhead) {
    typename Tree::Column columns[kAhead][2];
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < 2 * kAhead; ++j) {
      columns[j / 2][j % 2] = tree.column(min(column + 8 * (j0 + j / 2) + j % 2, last_column));
    }
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < 2 * kAhead; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        const int index = pair_index<kMmaM>(i, j0 + j / 2) + j % 2;
        values[index] = tree(sums[index], rows[i], columns[j / 2][j % 2]);
      }
    }
  }
}

// SumType: int32_t or float.
template <typename SumType>
struct ScaledOutput {
  ScaledEpilogueArgs epilogue;
  void* d;  // [m, n] of epilogue.out_type, contiguous
  int m, n;
  SumType* partials;       // parallel split: [slices, m, partial_stride]
  int64_t partial_stride;  // a multiple of 8

  static constexpr bool kStoresPartials = true;

  // Runs the epilogue on these store blocks (store_tile.cuh) and stores the outputs.
  template <int kMmaM, int kMmaN>
  __device__ void store(const SumType* sums, int row0, int column0, int lane,
                        uint32_t store_blocks) const {
    float values[4 * kMmaM * kMmaN];
    with_epilogue<SumType>(epilogue, [&](const auto& tree) {
      evaluate<kMmaM, kMmaN>(tree, sums, row0 + lane / 4, column0 + lane % 4 * 2, m - 1, n - 1,
                             values);
    });
    store_values<kMmaM, kMmaN>(values, row0, column0, lane, store_blocks);
  }

  // Stores the sums of a slice of a parallel split as they are.
  template <int kMmaM, int kMmaN>
  __device__ void store_partials(const SumType* sums, int slice, int row0, int column0,
                                 int lane) const {
    const PairMatrix<SumType> matrix{partials + static_cast<int64_t>(slice) * m * partial_stride, m,
                                     n, partial_stride};
    matrix.template store<kMmaM, kMmaN>(sums, row0, column0, lane);
  }

  template <int kMmaM, int kMmaN>
  __device__ void store_values(const float* values, int row0, int column0, int lane,
                               uint32_t store_blocks) const {
    const FloatMatrix matrix{d, epilogue.out_type, m, n};
    matrix.store<kMmaM, kMmaN>(values, row0, column0, lane, store_blocks);
  }
};

}  // namespace mixed_gemm
