// THE list of compiled multistage tiles. The launchers expand it at compile time, why_not and the
// cost model read it at run time; a new tile is one line here.
#pragma once
#include "core/tile.h"
#include "mainloop/scale_mode.h"

namespace mixed_gemm {

// plain: CUTLASS's kernel over ours compiled without splits, on an H100, five kinds of scales: 0.97
// to 1.03 on average of a tile and kind (1.02 with groups of 32 on 16 x 128, 1.03 with zero points
// on 32 x 256); over ours with the code of splits 0.90 to 1.03. With 16 tokens it takes 1.02 to
// 1.23 with zero points and up to 1.05 per channel, so ours runs there. Ours runs as well where a
// tile and kind gain less than 2 % by it, since such a kernel takes 1.7 s to compile: all of
// 16 x 256 (0.98), 32 x 256 with zero points (1.00) and 32 x 128 per channel (0.98).
//
// stream_k_apart: with the code of stream-K 128 x 256 takes all 255 registers and mostly spills 8
// bytes, without it 215 to 251. Split in parallel it then takes 0.91 of the time with groups of
// 128, but 0.98 with zero points or per channel, which pays for no kernels of its own: all of them
// were a sixth of the time that an instantiation file compiles. No other tile takes clearly fewer
// registers without it.
constexpr TileConfig kTileConfigs[] = {
    Tile(16, 128).warp(16, 32).stages(6).int8_stages(5).blocks(4).scales_sums().halves().plain(
        ForModes::kGroups),
    Tile(16, 256).warp(16, 64).stages(6).int8_stages(4).blocks(2).scales_sums().halves(),
    Tile(32, 128).warp(32, 32).stages(4).blocks(3).plain(ForModes::kGroups | ForModes::kZeros),
    Tile(32, 256).warp(32, 64).stages(4).blocks(2).plain(ForModes::kChannels | ForModes::kGroups),
    Tile(64, 128).warp(64, 32).stages(4).blocks(3).plain(ForModes::kAll),
    Tile(128, 256)
        .warp(128, 32)
        .stages(3)
        .blocks(1)
        .plain(ForModes::kAll)
        .stream_k_apart(ForModes::kGroups),
};
constexpr int kNumTileConfigs = sizeof(kTileConfigs) / sizeof(kTileConfigs[0]);

// THE list of the family's scale modes. scales_sums() says which of them meet sums instead.
constexpr ScaleMode kMultistageModes[] = {kNoScaleRows,        {kTileK, false},    {kTileK, true},
                                          {kTileK / 2, false}, {kTileK / 2, true}, {kMmaK, false},
                                          {kMmaK, true}};
constexpr int kNumMultistageModes = sizeof(kMultistageModes) / sizeof(kMultistageModes[0]);

// The place of the mode of a problem; -1: there is none.
constexpr int multistage_mode(const QuantScheme& scheme, int64_t k) {
  return mode_index(kMultistageModes, scale_mode(scheme, k));
}

// Whether there are kernels of a mode for a weight type. why_not and the launchers read it.
constexpr bool is_multistage_compiled(WeightType weight, int mode) {
  if (mode < 0) return false;
  const ScaleMode& scales = kMultistageModes[mode];
  const WeightInfo info = weight_info(weight);
  if (info.is_integer) return true;
  return scale_rows(scales) > 1 && !scales.zeros && scales.row_k >= info.least_group;
}

}  // namespace mixed_gemm
