// One compiled kernel of block_quant_gemm as a type: a row of kBlockTileConfigs, and how many rows
// of scales a line needs.
#pragma once
#include "block_gemm/config.h"
#include "mainloop/direct_config.cuh"

namespace mixed_gemm {

struct BlockTiles {
  static constexpr const TileConfig& row(int i) { return kBlockTileConfigs[i]; }
};

template <int kRow, int kScaleRows_>
struct BlockConfig : WarpTiling<BlockTiles, kRow> {
  using Mma = typename DirectInt8Config<BlockTiles, kRow>::Mma;
  static constexpr int kScaleRows = kScaleRows_;
};

}  // namespace mixed_gemm
