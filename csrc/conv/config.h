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

// Blocks on an SM. Zeros, beside the addresses of pixels, spilled with more than 8 warps.
constexpr int conv_blocks_per_sm(const TileConfig& t, const ScaleMode& mode) {
  return mode.zeros ? 8 * 32 / num_threads(t) : t.min_blocks;
}

constexpr int conv_smem_bytes(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  return smem_bytes(t, weight, mode) + t.m * kConvRowBytes;
}

// THE list of scale modes. One block of channels has a row of scales for whole k-tiles. Where
// k-tiles meet several blocks, these are given zeros if they have no offset.
constexpr ScaleMode kConvModes[] = {{kTileK, false}, {kTileK, true}, {kMmaK, true}};
constexpr int kNumConvModes = sizeof(kConvModes) / sizeof(kConvModes[0]);

// The mode of a problem: blocks are of whole k-tiles when no k-tile meets two.
constexpr ScaleMode conv_scale_mode(ZeroMode zero_mode, int64_t block_size, int64_t channels,
                                    int64_t channels_per_tap) {
  const bool whole =
      block_size >= channels || (block_size % kTileK == 0 && channels_per_tap % kTileK == 0);
  return {whole ? kTileK : kMmaK, !whole || zero_mode != ZeroMode::kNone};
}

// Whether there are kernels of a mode for a weight type. why_not and the launchers read it.
constexpr bool is_conv_compiled(WeightType weight, int mode) {
  return mode >= 0 && weight_info(weight).is_integer;
}

}  // namespace mixed_gemm
