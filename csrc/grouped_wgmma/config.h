#pragma once
#include "problem/grouped_gemm.h"
#include "wgmma/config.h"

namespace mixed_gemm {

constexpr int wgmma_row_of(int m, int n) {
  for (int row = 0; row < kNumWgmmaTileConfigs; ++row) {
    if (kWgmmaTileConfigs[row].m == m && kWgmmaTileConfigs[row].n == n) return row;
  }
  throw "no such tile";  // at compile time
}

// THE list of wgmma tiles for rows of experts: rows of kWgmmaTileConfigs. Several experts have
// enough columns for wide tiles.
constexpr int kGroupedWgmmaRows[] = {wgmma_row_of(16, 256), wgmma_row_of(32, 128),
                                     wgmma_row_of(64, 256), wgmma_row_of(128, 256)};
constexpr int kNumGroupedWgmma = sizeof(kGroupedWgmmaRows) / sizeof(kGroupedWgmmaRows[0]);

// Whether there are kernels of a mode for a weight type; books of values have none.
constexpr bool is_grouped_wgmma_compiled(WeightType weight, int mode) {
  return !weight_info(weight).has_book && is_wgmma_compiled(weight, mode);
}

}  // namespace mixed_gemm
