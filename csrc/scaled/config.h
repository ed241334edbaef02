// THE list of compiled tiles of the scaled GEMMs by mma.sync (int8 x int8, fp8 x fp8).
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

// 64 x 64 a warp reads the least of shared memory for a product. Smaller ones are for few rows, for
// more blocks than the output has large tiles, and for GPUs with 99 KB.
//
// plain: CUTLASS's kernel over ours compiled without splits, on an H100, int8 with each of the four
// epilogues: 0.95 to 1.02 on average of a tile and epilogue (128 x 256 without bias 1.03); 16 x 64
// 1.01 to 1.03, so ours runs there.
constexpr TileConfig kScaledTileConfigs[] = {
    Tile(16, 64).warp(16, 16).stages(8).blocks(2),
    Tile(32, 64).warp(32, 16).stages(8).blocks(2).plain(ForModes::kAll),
    Tile(32, 128).warp(32, 32).stages(4).blocks(2).plain(ForModes::kAll),
    Tile(64, 64).warp(32, 32).stages(6).blocks(2).plain(ForModes::kAll),
    Tile(64, 128).warp(32, 64).stages(4).blocks(2).plain(ForModes::kAll),
    Tile(128, 128).warp(64, 32).stages(4).blocks(1).plain(ForModes::kAll),
    Tile(128, 256).warp(64, 64).stages(4).blocks(1).plain(ForModes::kAll),
};
constexpr int kNumScaledTileConfigs = sizeof(kScaledTileConfigs) / sizeof(kScaledTileConfigs[0]);

}  // namespace mixed_gemm
