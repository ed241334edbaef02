// THE list of tiles that are compiled for the convolutions with quantized weights, and their scale
// modes.
#pragma once
#include "mainloop/multistage_stage.h"
#include "mainloop/pixel_stage.h"

namespace mixed_gemm {

// The first ones are for single images, whose layers have few pixels and up to 4608 channels times
// taps: there the time is the latency of a row of k-tiles, which warps that share out K shorten.
constexpr TileConfig kConvTileConfigs[] = {
    Tile(16, 32).warp(16, 32).stages(3).blocks(2).k_warps(8),
    Tile(16, 64).warp(16, 64).stages(3).blocks(2).k_warps(8),
    Tile(32, 64).warp(16, 32).stages(4).blocks(4),
    Tile(64, 128).warp(64, 32).stages(4).blocks(3),
};
constexpr int kNumConvTileConfigs = sizeof(kConvTileConfigs) / sizeof(kConvTileConfigs[0]);

// Resident on an SM. Zeros, beside the addresses of pixels, spilled with more than 8 warps.
constexpr int conv_blocks_per_sm(const TileConfig& t, ScaleMode mode) {
  return has_zeros(mode) ? 8 * 32 / num_threads(t) : t.min_blocks;
}

constexpr int conv_smem_bytes(const TileConfig& t, WeightType weight, ScaleMode mode) {
  return smem_bytes(t, weight, mode) + t.m * kConvRowBytes;
}

// Three modes are compiled: the scales of one block of channels serve as coarse ones, and a fine
// block without offset is given zeros. Blocks are coarse when no k-tile meets two.
constexpr ScaleMode conv_scale_mode(ZeroMode zero_mode, int64_t block_size, int64_t channels,
                                    int64_t channels_per_tap) {
  const bool coarse =
      block_size >= channels || (block_size % kTileK == 0 && channels_per_tap % kTileK == 0);
  if (!coarse) return ScaleMode::kFineZero;
  return zero_mode == ZeroMode::kNone ? ScaleMode::kCoarse : ScaleMode::kCoarseZero;
}

}  // namespace mixed_gemm
