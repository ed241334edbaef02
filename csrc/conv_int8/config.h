// THE list of tiles that are compiled for the int8 convolution.
#pragma once
#include <iterator>

#include "mainloop/direct_stage.h"
#include "mainloop/pixel_stage.h"

namespace mixed_gemm {

constexpr int conv_int8_smem_bytes(const TileConfig& t) {
  return scaled_smem_bytes(t) + t.m * kConvRowBytes;
}

constexpr TileConfig kConvInt8TileConfigs[] = {
    Tile(32, 64).warp(32, 16).stages(8).blocks(2),
    Tile(64, 128).warp(32, 64).stages(4).blocks(2),
    Tile(128, 128).warp(64, 32).stages(4).blocks(1),
};
constexpr int kNumConvInt8TileConfigs = std::size(kConvInt8TileConfigs);

}  // namespace mixed_gemm
