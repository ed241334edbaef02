// THE list of compiled tiles of the scaled GEMMs by wgmma (int8 x int8 and float8 x float8,
// sm_90a); warp_m, warp_n: of a warpgroup, whose instruction has 64 rows and up to 256 columns.
// A tile of fewer rows copies no more than these: behind its tokens the instruction reads weights
// of the same stage in their place, and such results are never stored.
#pragma once
#include <iterator>

#include "core/quant_scheme.h"
#include "hopper/stage.h"
#include "mainloop/direct_stage.h"

namespace mixed_gemm {

constexpr int wgmma_scaled_smem_bytes(const TileConfig& t) {
  const int vectors = 2 * (12 * t.n + 8 * t.m);  // of two tiles: scaled_wgmma/output.cuh
  const int aligned = static_cast<int>(round_up(vectors, kStageAlignment));
  return t.stages * scaled_stage_bytes(t) + aligned + kStageAlignment;  // barriers: the last term
}

constexpr TileConfig kWgmmaScaledTileConfigs[] = {
    Tile(16, 64).warp(64, 32).stages(10).blocks(2),
    Tile(64, 64).warp(64, 32).stages(6).blocks(2),
    Tile(64, 128).warp(64, 64).stages(4).blocks(2),
    Tile(128, 128).warp(64, 128).stages(6).blocks(1),
    Tile(128, 256).warp(64, 256).stages(4).blocks(1),
};
constexpr int kNumWgmmaScaledTileConfigs = std::size(kWgmmaScaledTileConfigs);

constexpr bool has_few_rows(const TileConfig& t) { return t.m < t.warp_m; }

// The tensor core keeps about 14 bits of a sum of float8, so after each line of K its sums are
// added to fp32 ones of the warpgroup, in registers of their own. These are 64, so the instruction
// has 128 columns at most and a wider part of a tile is several.
constexpr int kWgmmaFp8Columns = 128;
constexpr int wgmma_fp8_columns(const TileConfig& t) {
  return t.warp_n < kWgmmaFp8Columns ? t.warp_n : kWgmmaFp8Columns;
}

// With scales of blocks, a line of K and the columns of an instruction have one of b.
constexpr int kScaleBlock = kScaledTileK;

// The block of columns whose scale an instruction at this column of the output takes. The last
// instructions of a ragged output are behind its end, and take the last one.
constexpr int scale_block(int column, int blocks) {
  const int block = static_cast<int>(static_cast<unsigned>(column) / kScaleBlock);
  return block < blocks ? block : blocks - 1;
}

}  // namespace mixed_gemm
