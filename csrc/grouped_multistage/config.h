#pragma once
#include "multistage/config.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

constexpr int tile_row_of(int m, int n) {
  for (int row = 0; row < kNumTileConfigs; ++row) {
    if (kTileConfigs[row].m == m && kTileConfigs[row].n == n) return row;
  }
  throw "no such tile";  // at compile time
}

// THE list of multistage tiles for rows of experts: rows of kTileConfigs. Fewer rows run the skinny
// kernels.
constexpr int kGroupedTileRows[] = {tile_row_of(32, 128), tile_row_of(64, 128),
                                    tile_row_of(128, 256)};
constexpr int kNumGroupedTiles = sizeof(kGroupedTileRows) / sizeof(kGroupedTileRows[0]);

// Whether there are kernels of a mode for a weight type; books of values have none.
constexpr bool is_grouped_multistage_compiled(WeightType weight, int mode) {
  return !weight_info(weight).has_book && is_multistage_compiled(weight, mode);
}

}  // namespace mixed_gemm
