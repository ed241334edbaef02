// One compiled scaled GEMM as a type: operand type and a row of kScaledTileConfigs.
#pragma once
#include "mainloop/direct_config.cuh"
#include "scaled/config.h"

namespace mixed_gemm {

struct ScaledTiles {
  static constexpr const TileConfig& row(int i) { return kScaledTileConfigs[i]; }
};

template <int kRow>
using Int8Config = DirectInt8Config<ScaledTiles, kRow>;
template <int kRow>
using Fp8Config = DirectFp8Config<ScaledTiles, kRow>;

}  // namespace mixed_gemm
