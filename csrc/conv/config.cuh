// One compiled convolution as a type: element, weight type, scale mode and a row of
// kConvTileConfigs.
#pragma once
#include "conv/config.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

struct ConvTiles {
  static constexpr const TileConfig& row(int i) { return kConvTileConfigs[i]; }
  static constexpr const ScaleMode& mode(int i) { return kConvModes[i]; }
  static constexpr bool kOffsetsPerChannel = false;  // scales are never per channel here
};

template <typename Element, typename Weight, int kMode, int kRow>
using ConvConfig = GemmConfig<Element, Weight, kMode, kRow, ConvTiles>;

}  // namespace mixed_gemm
