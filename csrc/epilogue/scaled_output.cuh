// Accumulators of a warp -> scaled outputs of any float type, or the sums of a parallel split.
#pragma once
#include "epilogue/float_matrix.cuh"
#include "epilogue/scaled_epilogue.cuh"

namespace mixed_gemm {

// SumType: int32_t or float.
template <typename SumType>
struct ScaledOutput {
  ScaledEpilogueArgs epilogue;
  void* d;  // [m, n] of epilogue.out_type, contiguous
  int m, n;
  SumType* partials;       // parallel split: [slices, m, partial_stride]
  int64_t partial_stride;  // a multiple of 8

  template <int kMmaM, int kMmaN>
  __device__ void store(const SumType* sums, int slice, int row0, int column0, int lane,
                        uint32_t units) const {
    if (slice >= 0) {
      const PairMatrix<SumType> matrix{partials + static_cast<int64_t>(slice) * m * partial_stride,
                                       m, n, partial_stride};
      matrix.template store<kMmaM, kMmaN>(sums, row0, column0, lane);
      return;
    }
    float values[4 * kMmaM * kMmaN];
    with_epilogue<SumType>(epilogue, [&](const auto& tree) {
      evaluate<kMmaM, kMmaN>(tree, sums, row0 + lane / 4, column0 + lane % 4 * 2, values);
    });
    const FloatMatrix matrix{d, epilogue.out_type, m, n};
    matrix.store<kMmaM, kMmaN>(values, row0, column0, lane, units);
  }

 private:
  // Rows and columns outside of the output take the values of the last one: never stored.
  template <int kMmaM, int kMmaN, typename Tree>
  __device__ void evaluate(const Tree& tree, const SumType* sums, int row, int column,
                           float* values) const {
    typename Tree::Row rows[2 * kMmaM];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kMmaM; ++i) rows[i] = tree.row(min(row + 8 * i, m - 1));
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        const typename Tree::Column at = tree.column(min(column + 8 * j + e, n - 1));
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < 2 * kMmaM; ++i) {
          const int index = pair_index<kMmaM>(i, j) + e;
          values[index] = tree(sums[index], rows[i], at);
        }
      }
    }
  }
};

}  // namespace mixed_gemm
