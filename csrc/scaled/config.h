// THE list of compiled tiles of the scaled GEMMs by mma.sync (int8 x int8, fp8 x fp8).
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

// 64 x 64 a warp asks least of shared memory for a product. Smaller ones are for rows that are not
// there, for more blocks than the output has large tiles, and for GPUs with 99 KB.
constexpr TileConfig kScaledTileConfigs[] = {
    {16, 64, 16, 16, 8, 2},   {32, 64, 32, 16, 8, 2},  {32, 128, 32, 32, 4, 2},
    {64, 64, 32, 32, 6, 2},   {64, 128, 32, 64, 4, 2}, {128, 128, 64, 32, 4, 1},
    {128, 256, 64, 64, 4, 1},
};
constexpr int kNumScaledTileConfigs = sizeof(kScaledTileConfigs) / sizeof(kScaledTileConfigs[0]);

}  // namespace mixed_gemm
