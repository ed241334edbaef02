// THE list of compiled multistage tiles. The launchers expand it at compile time, why_not and the
// cost model read it at run time; a new tile is one line here.
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

constexpr TileConfig kTileConfigs[] = {
    Tile(16, 128).warp(16, 32).stages(6).int8_stages(5).blocks(4).scales_sums().halves(),
    Tile(16, 256).warp(16, 64).stages(6).int8_stages(4).blocks(2).scales_sums().halves(),
    Tile(32, 128).warp(32, 32).stages(4).blocks(3),
    Tile(32, 256).warp(32, 64).stages(4).blocks(2),
    Tile(64, 128).warp(64, 32).stages(4).blocks(3),
    Tile(128, 256).warp(128, 32).stages(3).blocks(1),
};
constexpr int kNumTileConfigs = sizeof(kTileConfigs) / sizeof(kTileConfigs[0]);

}  // namespace mixed_gemm
