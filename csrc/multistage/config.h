// THE list of compiled multistage tiles. The launchers expand it at compile time, why_not and the
// cost model read it at run time; a new tile is one line here.
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

// plain: the time of CUTLASS's kernel over that of ours on an H100, without a split: 0.90 to 1.01
// in all modes from 32 tokens on (128 x 256 fp16 0.90 to 0.92: there ours spills). With 16 tokens
// 0.91 to 1.02 where scales meet sums, but 1.02 to 1.23 with zero points and up to 1.05 per
// channel.
constexpr TileConfig kTileConfigs[] = {
    Tile(16, 128).warp(16, 32).stages(6).int8_stages(5).blocks(4).scales_sums().halves().plain(
        Plain::kScalesWithoutZeros),
    Tile(16, 256).warp(16, 64).stages(6).int8_stages(4).blocks(2).scales_sums().halves().plain(
        Plain::kScalesWithoutZeros),
    Tile(32, 128).warp(32, 32).stages(4).blocks(3).plain(Plain::kAlways),
    Tile(32, 256).warp(32, 64).stages(4).blocks(2).plain(Plain::kAlways),
    Tile(64, 128).warp(64, 32).stages(4).blocks(3).plain(Plain::kAlways),
    Tile(128, 256).warp(128, 32).stages(3).blocks(1).plain(Plain::kAlways),
};
constexpr int kNumTileConfigs = sizeof(kTileConfigs) / sizeof(kTileConfigs[0]);

}  // namespace mixed_gemm
