// One compiled int8 convolution as a type: a row of kConvInt8TileConfigs.
#pragma once
#include "conv_int8/config.h"
#include "mainloop/direct_config.cuh"

namespace mixed_gemm {

struct ConvInt8Tiles {
  static constexpr const TileConfig& row(int i) { return kConvInt8TileConfigs[i]; }
};

template <int kRow>
using ConvInt8Config = DirectInt8Config<ConvInt8Tiles, kRow>;

}  // namespace mixed_gemm
