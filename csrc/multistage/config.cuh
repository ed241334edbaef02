// One compiled multistage GEMM as a type: element, weight type, scale mode and a row of
// kTileConfigs.
#pragma once
#include "mainloop/gemm_config.cuh"
#include "multistage/config.h"

namespace mixed_gemm {

struct MultistageTiles {
  static constexpr const TileConfig& row(int i) { return kTileConfigs[i]; }
  static constexpr const ScaleMode& mode(int i) { return kMultistageModes[i]; }
  static constexpr bool kOffsetsPerChannel = true;
};

template <typename Element, typename Weight, int kMode, int kRow>
using MultistageConfig = GemmConfig<Element, Weight, kMode, kRow, MultistageTiles>;

}  // namespace mixed_gemm
