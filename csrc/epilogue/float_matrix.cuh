// A row-major matrix [m, n], contiguous, of any float type, chosen at run time.
#pragma once
#include "core/quant_scheme.h"
#include "epilogue/store_tile.cuh"

namespace mixed_gemm {

struct FloatMatrix {
  void* d;
  ElementType type;
  int m, n;

  // Takes the arguments of RoundedMatrix::store.
  template <int kMmaM, int kMmaN>
  __device__ void store(const float* values, int row0, int column0, int lane,
                        uint32_t store_blocks) const {
    if (type == ElementType::kFloat16) {
      rounded<cutlass::half_t>().template store<kMmaM, kMmaN>(values, row0, column0, lane,
                                                              store_blocks);
    } else if (type == ElementType::kBFloat16) {
      rounded<cutlass::bfloat16_t>().template store<kMmaM, kMmaN>(values, row0, column0, lane,
                                                                  store_blocks);
    } else {
      store_float<kMmaM, kMmaN>(values, row0 + lane / 4, column0 + lane % 4 * 2, store_blocks);
    }
  }

 private:
  template <typename Element>
  __device__ RoundedMatrix<Element> rounded() const {
    return {static_cast<Element*>(d), m, n};
  }

  template <int kMmaM, int kMmaN>
  __device__ void store_float(const float* values, int row, int column,
                              uint32_t store_blocks) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * kMmaM; ++i, row += 8) {
      if (row >= m) return;
      float* target = static_cast<float*>(d) + static_cast<int64_t>(row) * n + column;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMmaN; ++j) {
        if (!stores_block<kMmaM>(store_blocks, i / 2, j)) continue;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          if (column + 8 * j + e < n) target[8 * j + e] = values[pair_index<kMmaM>(i, j) + e];
        }
      }
    }
  }
};

}  // namespace mixed_gemm
