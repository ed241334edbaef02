// THE list of tiles that are compiled for the int8 convolution.
#pragma once
#include "mainloop/direct_stage.h"
#include "mainloop/pixel_stage.h"

namespace mixed_gemm {

constexpr TileConfig kConvInt8TileConfigs[] = {
    {32, 64, 32, 16, 8, 2},
    {64, 128, 32, 64, 4, 2},
    {128, 128, 64, 32, 4, 1},
};
constexpr int kNumConvInt8TileConfigs =
    sizeof(kConvInt8TileConfigs) / sizeof(kConvInt8TileConfigs[0]);

constexpr int conv_int8_smem_bytes(const TileConfig& t) {
  return scaled_smem_bytes(t) + t.m * kConvRowBytes;
}

}  // namespace mixed_gemm
