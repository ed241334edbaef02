#pragma once
#include "core/quant_scheme.h"
#include "core/tile.h"
#include "dequant/book.h"
#include "hopper/stage.h"
#include "mainloop/scale_mode.h"

namespace mixed_gemm {

// THE list of compiled wgmma tiles (sm_90a): m tokens, which are the columns of the instruction, by
// n columns of weights, which are its 64 rows; warp_m, warp_n: of a warpgroup. Weights are
// converted once for all tokens of a tile, so wide tiles multiply at the rate of the tensor cores,
// and narrow ones at the rate of the conversion. Narrow ones save work of each k-tile with 256
// columns, and of each stage with two k-tiles in one; the others leave more blocks to share out.
// (Two k-tiles: 0.96 to 0.98 of the time, with zero points 0.92 to 0.97 from 32 tokens on. For 32 x
// 128 with two blocks on an SM and two k-tiles 0.94 to 0.99 of three blocks with one: a third block
// has no registers for the longer loop.)
constexpr TileConfig kWgmmaTileConfigs[] = {
    Tile(16, 256)
        .warp(16, 128)
        .stages(4)
        .blocks(2)
        .k_tiles(2)
        .scale_rows(2)
        .scales_sums()
        .zero_loop(ZeroLoop::kAlways),
    Tile(32, 128)
        .warp(32, 64)
        .stages(6)
        .int8_stages(4)
        .blocks(2)
        .k_tiles(2)
        .scale_rows(2)
        .scales_sums(),
    Tile(32, 256)
        .warp(32, 128)
        .stages(4)
        .blocks(2)
        .k_tiles(2)
        .scale_rows(2)
        .scales_sums()
        .zero_loop(ZeroLoop::kAsked)
        .alone(Alone::kWithScales),
    Tile(64, 128)
        .warp(64, 64)
        .stages(4)
        .blocks(2)
        .k_tiles(2)
        .zero_loop(ZeroLoop::kAsked)
        .alone(Alone::kWithZeros),
    Tile(64, 256).warp(64, 128).stages(4).blocks(1).k_tiles(2).zero_loop(ZeroLoop::kAsked),
    Tile(128, 128).warp(128, 64).stages(6).blocks(1),
    Tile(128, 256).warp(128, 128).stages(5).blocks(1),
    Tile(256, 128).warp(256, 64).stages(4).blocks(1),
};
constexpr int kNumWgmmaTileConfigs = sizeof(kWgmmaTileConfigs) / sizeof(kWgmmaTileConfigs[0]);

// THE list of the family's scale modes. How many rows a k-tile has is asked at run time; of floats
// those with a row for each mma step have kernels of their own, since a loop for four rows beside
// those for one and two has no registers with few tokens.
constexpr ScaleMode kWgmmaModes[] = {
    kNoScaleRows, {kAnyRow, false}, {kAnyRow, true}, {kMmaK, false}};
constexpr int kNumWgmmaModes = sizeof(kWgmmaModes) / sizeof(kWgmmaModes[0]);
constexpr ScaleMode wgmma_scales(const QuantScheme& scheme, int64_t k) {
  ScaleMode mode = scale_mode(scheme, k);
  const bool own = mode.row_k == kMmaK && !weight_info(scheme.weight).is_integer;
  if (is_scaled(mode) && !own) mode.row_k = kAnyRow;
  return mode;
}
// The place of the mode of a problem; -1: there is none.
constexpr int wgmma_mode(const QuantScheme& scheme, int64_t k) {
  return mode_index(kWgmmaModes, wgmma_scales(scheme, k));
}

// Whether there are kernels of a mode for a weight type. why_not and the launchers read it.
constexpr bool is_wgmma_compiled(WeightType weight, int mode) {
  if (mode < 0) return false;
  const ScaleMode& scales = kWgmmaModes[mode];
  const WeightInfo info = weight_info(weight);
  if (info.is_integer) return scales.row_k != kMmaK;
  const bool has_rows = scales.row_k == kAnyRow || scales.row_k >= info.least_group;
  return is_scaled(scales) && !scales.zeros && has_rows;
}

// Whether zero points of groups of whole k-tiles have a loop that takes them to be whole numbers:
// 0.93 to 0.95 of the time with 16 tokens, 0.95 to 0.97 with 32, 0.97 to 0.99 with 64. With 32 x
// 128 short runs lose more by asking (0.97) than long ones gain (1.01).
constexpr bool has_integer_zeros(const TileConfig& t, const ScaleMode& mode) {
  return mode.zeros && t.zero_loop != ZeroLoop::kNone;
}
// Whether fractional zero points have a loop of their own as well, and the first group of a run
// says which runs (wgmma/integer_zeros.cuh). 16 tokens have no registers for a third loop (spills).
constexpr bool asks_for_integer_zeros(const TileConfig& t, const ScaleMode& mode) {
  return mode.zeros && t.zero_loop == ZeroLoop::kAsked;
}
// Whether fractions are added behind the loop instead (wgmma/fractional_zeros.cuh): 1.2 to 1.3 of
// the time of a loop of their own with groups of 128, 1.4 to 1.6 with groups of 64.
constexpr bool adds_fractional_zeros(const TileConfig& t, const ScaleMode& mode) {
  return has_integer_zeros(t, mode) && !asks_for_integer_zeros(t, mode);
}
// Whether scales of groups of whole k-tiles multiply sums. They do where a lane has at most half as
// many sums as pairs of weights of a group of 128: 0.92 to 0.97 of the time; but not beside zero
// points that are no whole numbers, whose rest would be an instruction more for each weight.
constexpr bool wgmma_scales_sums(const TileConfig& t, const ScaleMode& mode) {
  const bool without_zeros = is_scaled(mode) && !mode.zeros;
  return t.scales_sums && (without_zeros || has_integer_zeros(t, mode));
}
// The table of pairs that weights of a book are looked up in (dequant/pair_table.cuh). It is wide
// for few tokens, where conversion is the time: then a block has an SM for itself. Otherwise it
// takes the place of stages.
constexpr bool has_wide_table(const TileConfig& t, WeightType weight) {
  return weight_info(weight).has_book && t.m <= 32 && t.n == 256;
}
constexpr int wgmma_table_bytes(const TileConfig& t, WeightType weight) {
  return weight_info(weight).has_book ? pair_table_bytes(has_wide_table(t, weight)) : 0;
}
// Blocks on an SM. With 32 x 256 the sums of a group have no registers beside another block's, and
// with zero points the next group's are loaded ahead (wgmma/weight_scaling.cuh): 0.94 to 1.02. With
// 64 x 128 the loop for whole zero points has none either (0.97 to 1.01; spilling beside another
// block 0.97 to 1.03).
constexpr int wgmma_blocks(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  const bool alone = has_wide_table(t, weight) ||
                     (t.alone == Alone::kWithScales && is_scaled(mode)) ||
                     (t.alone == Alone::kWithZeros && mode.zeros);
  return alone ? 1 : t.min_blocks;
}

// The rows of scales in a k-tile: one where groups are multiples of it, else one for each half of
// it, or for each mma step.
constexpr int wgmma_scale_rows(int64_t group_size, int64_t k) {
  if (group_size >= k || group_size % kTileK == 0) return 1;
  return group_size % (kTileK / 2) == 0 ? 2 : kTileK / kMmaK;
}
// The most of them. Up to 32 tokens a third loop has no registers (wgmma serialized, or spills).
constexpr int max_wgmma_scale_rows(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  if (mode.row_k != kAnyRow) return kTileK / mode.row_k;
  return weight_info(weight).is_integer ? t.scale_rows : 2;
}

constexpr int wgmma_k_tile_bytes(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  const int rows =
      is_scaled(mode) ? max_wgmma_scale_rows(t, weight, mode) * (mode.zeros ? 2 : 1) : 0;
  return static_cast<int>(round_up(
      t.m * kTileK * 2 + t.n * kTileK * bits_of(weight) / 8 + rows * t.n * scale_bytes(mode.type),
      kStageAlignment));
}
constexpr int wgmma_bytes_behind_stages(const TileConfig& t, WeightType weight,
                                        const ScaleMode& mode) {
  // Barriers, and sums of tokens of a warp each (wgmma/fractional_zeros.cuh).
  const int sums = adds_fractional_zeros(t, mode) ? kWgmmaMultipliers * 4 * t.m * 4 : 0;
  const int barriers = 2 * 8 * t.stages;
  return static_cast<int>(round_up(barriers + sums, kStageAlignment)) +
         wgmma_table_bytes(t, weight);
}
constexpr int wgmma_stages(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  if (wgmma_table_bytes(t, weight) == 0) return t.stages;
  const int room = hopper_block_bytes(wgmma_blocks(t, weight, mode));
  const int stage = t.k_tiles * wgmma_k_tile_bytes(t, weight, mode);
  const int fit = (room - wgmma_bytes_behind_stages(t, weight, mode)) / stage;
  return fit < t.stages ? fit : t.stages;
}
constexpr int wgmma_smem_bytes(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  return wgmma_stages(t, weight, mode) * t.k_tiles * wgmma_k_tile_bytes(t, weight, mode) +
         wgmma_bytes_behind_stages(t, weight, mode);
}

}  // namespace mixed_gemm
