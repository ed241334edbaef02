// THE list of compiled tiles of block_quant_gemm: with fp32 sums beside
// the int32 sums of a block of K, so a warp has half as many outputs.
#pragma once
#include "mainloop/direct_stage.h"

namespace mixed_gemm {

constexpr TileConfig kBlockTileConfigs[] = {
    Tile(16, 64).warp(16, 16).stages(6).blocks(2),   Tile(32, 64).warp(32, 16).stages(5).blocks(2),
    Tile(64, 64).warp(32, 32).stages(4).blocks(2),   Tile(64, 128).warp(64, 32).stages(4).blocks(2),
    Tile(128, 128).warp(64, 32).stages(4).blocks(1),
};
constexpr int kNumBlockTileConfigs = sizeof(kBlockTileConfigs) / sizeof(kBlockTileConfigs[0]);

// mma.m16n8k32: blocks of K are padded to this, unless there is only one.
constexpr int kBlockStep = 32;

// A line of kScaledTileK brings one row of scales along where blocks end with lines ("coarse"),
// else one for each mma step ("fine"). Where the column sums of B are given they come with the
// scales. Fine blocks are summed in any case: kernels of their own for given sums would make the
// library larger by as much again.
struct BlockMode {
  int scale_rows;
  bool sums_given;
};
enum BlockModeIndex { kCoarseBlocks, kFineBlocks, kSummedBlocks };
constexpr BlockMode kBlockModes[] = {{1, false}, {kScaledTileK / kBlockStep, false}, {1, true}};
constexpr int kNumBlockModes = sizeof(kBlockModes) / sizeof(kBlockModes[0]);

// Bytes of scales in shared memory: a row of the tile has 16, a column 8, or 16 with its sum. There
// is one slot more than stages, since the slot of a line is still read when the stage of that line
// is filled again.
constexpr int block_slot_bytes(const TileConfig& t, const BlockMode& mode) {
  return mode.scale_rows * (16 * t.m + (mode.sums_given ? 16 : 8) * t.n);
}
constexpr int block_smem_bytes(const TileConfig& t, const BlockMode& mode) {
  return scaled_smem_bytes(t) + (t.stages + 1) * block_slot_bytes(t, mode);
}

}  // namespace mixed_gemm
