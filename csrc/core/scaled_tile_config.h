// THE list of compiled tiles of the scaled GEMMs (int8 x int8, fp8 x fp8): like kTileConfigs of
// tile_config.h, but both operands are rows of bytes along K.
#pragma once
#include "core/tile_config.h"

namespace mixed_gemm {

constexpr int kScaledTileK = 128;  // one line of shared memory

// 64 x 64 a warp asks least of shared memory for a product. Smaller ones are for rows that are not
// there, for more blocks than the output has large tiles, and for GPUs with 99 KB.
constexpr TileConfig kScaledTileConfigs[] = {
    {16, 64, 16, 16, 8, 2},   {32, 64, 32, 16, 8, 2},  {32, 128, 32, 32, 4, 2},
    {64, 64, 32, 32, 6, 2},   {64, 128, 32, 64, 4, 2}, {128, 128, 64, 32, 4, 1},
    {128, 256, 64, 64, 4, 1},
};
constexpr int kNumScaledTileConfigs = sizeof(kScaledTileConfigs) / sizeof(kScaledTileConfigs[0]);

// The same for wgmma (sm_90a); warp_m, warp_n: of a warpgroup, whose instruction has 64 rows and up
// to 256 columns.
constexpr TileConfig kWgmmaInt8TileConfigs[] = {{64, 64, 64, 32, 6, 2},
                                                {64, 128, 64, 64, 4, 2},
                                                {128, 128, 64, 128, 6, 1},
                                                {128, 256, 64, 256, 4, 1}};
constexpr int kNumWgmmaInt8TileConfigs =
    sizeof(kWgmmaInt8TileConfigs) / sizeof(kWgmmaInt8TileConfigs[0]);

constexpr int scaled_stage_bytes(const TileConfig& t) { return (t.m + t.n) * kScaledTileK; }
constexpr int scaled_smem_bytes(const TileConfig& t) {
  return t.stages * scaled_stage_bytes(t) + kMaxWarps * 4;
}

constexpr int wgmma_int8_smem_bytes(const TileConfig& t) {
  const int vectors = 2 * (12 * t.n + 8 * t.m);  // of two tiles: wgmma_scaled_output.cuh
  const int aligned = static_cast<int>(round_up(vectors, kStageAlignment));
  return t.stages * scaled_stage_bytes(t) + aligned + kStageAlignment;  // barriers: the last term
}

}  // namespace mixed_gemm
