// One compiled kernel of block_quant_gemm as a type: a row of kBlockTileConfigs, and one of
// kBlockModes.
#pragma once
#include "block_gemm/config.h"
#include "mainloop/direct_config.cuh"

namespace mixed_gemm {

struct BlockTiles {
  static constexpr const TileConfig& row(int i) { return kBlockTileConfigs[i]; }
};

template <int kRow, int kMode_>
struct BlockConfig : WarpTiling<BlockTiles, kRow> {
  using Mma = typename DirectInt8Config<BlockTiles, kRow>::Mma;
  static constexpr BlockMode kMode = kBlockModes[kMode_];
  static constexpr int kScaleRows = kMode.scale_rows;
  static constexpr bool kSumsGiven = kMode.sums_given;
};

}  // namespace mixed_gemm
