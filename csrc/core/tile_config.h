// THE list of compiled multistage tiles, and what each one needs. The launchers expand it at
// compile time, why_not and the cost model read it at run time; a new tile is one line here.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

constexpr int kTileK =
    64;  // one 128-byte line of the packed weight, and 128 bytes of a 16-bit activation row

struct TileConfig {
  int m, n;             // threadblock tile; its K is kTileK
  int warp_m, warp_n;   // warp tile; warps that share columns convert the same weights again
  int stages;           // cp.async pipeline depth
  int min_blocks;       // resident on an SM: caps the registers
  int k_slices = 1;     // above 1: so many warps, each with stages and a part of K of its own, for
                        // the whole tile (warp_m, warp_n: the tile's)
  int int8_stages = 0;  // of int8 weights, where not `stages`: these have nearly twice the bytes
  int k_tiles = 1;      // of a stage, and of a part of K that is shared out (wgmma)
};

// What blocks share out of K, at least.
constexpr int64_t unit_k(const TileConfig& t) { return int64_t{t.k_tiles} * kTileK; }

constexpr int num_stages(const TileConfig& t, int bits) {
  return bits == 8 && t.int8_stages > 0 ? t.int8_stages : t.stages;
}

constexpr TileConfig kTileConfigs[] = {
    {16, 128, 16, 32, 6, 4, 1, 5},  //
    {16, 256, 16, 64, 6, 2, 1, 4},  //
    {32, 128, 32, 32, 4, 3},        //
    {32, 256, 32, 64, 4, 2},        //
    {64, 128, 64, 32, 4, 3},        //
    {128, 256, 128, 32, 3, 1},
};
constexpr int kNumTileConfigs = sizeof(kTileConfigs) / sizeof(kTileConfigs[0]);

// Where scales enter. kPerChannel multiplies the accumulators in the epilogue; the others multiply
// converted weights in the mainloop: one scale row per k-tile when groups are multiples of it
// ("coarse"), else one for each half of it, or for each mma step of 16 k ("fine").
enum class ScaleMode : int {
  kPerChannel,
  kCoarse,
  kCoarseZero,
  kHalf,
  kHalfZero,
  kFine,
  kFineZero
};
constexpr int kNumScaleModes = 7;

constexpr int kMmaK = 16;
// Of any list of modes here: after kPerChannel come pairs of one without zero points and one with.
template <typename Mode>
constexpr bool has_zeros(Mode mode) {
  return mode != Mode::kPerChannel && static_cast<int>(mode) % 2 == 0;
}
constexpr int scale_rows(ScaleMode mode) {
  constexpr int kRows[kNumScaleModes] = {0, 1, 1, 2, 2, kTileK / kMmaK, kTileK / kMmaK};
  return kRows[static_cast<int>(mode)];
}
// The mode of the kernel that runs for `mode`. Only tiles of 16 tokens have one for halves: in
// others scales are a smaller part of the work, and it would take half as long again to compile.
constexpr ScaleMode compiled_mode(const TileConfig& t, ScaleMode mode) {
  if (t.m == 16 || scale_rows(mode) != 2) return mode;
  return has_zeros(mode) ? ScaleMode::kFineZero : ScaleMode::kFine;
}

constexpr ScaleMode scale_mode(const QuantScheme& scheme, int64_t k) {
  const bool zeros = scheme.zero_mode != ZeroMode::kNone;
  const bool one_group = scheme.group_size >= k;
  if (one_group && !zeros) return ScaleMode::kPerChannel;
  if (one_group || scheme.group_size % kTileK == 0)
    return zeros ? ScaleMode::kCoarseZero : ScaleMode::kCoarse;
  if (scheme.group_size % (kTileK / 2) == 0) {
    return zeros ? ScaleMode::kHalfZero : ScaleMode::kHalf;
  }
  return zeros ? ScaleMode::kFineZero : ScaleMode::kFine;
}

constexpr int num_threads(const TileConfig& t) {
  return t.m / t.warp_m * (t.n / t.warp_n) * t.k_slices * 32;
}

// Scales meet fp32 sums there (mainloop/group_sums.cuh), not weights. With 32 tokens there are as
// many sums as weights, and their registers cost a resident block: 4 to 14 % slower. Convolutions,
// which have slices of K, keep one group a k-tile.
constexpr bool scales_sums(const TileConfig& t, ScaleMode mode) {
  return t.m == 16 && t.k_slices == 1 && mode != ScaleMode::kPerChannel && scale_rows(mode) == 1;
}
// Rows of zero points beside those of scales. Where sums are scaled they take another way
// (mainloop/zero_products.cuh).
constexpr bool stages_zeros(const TileConfig& t, ScaleMode mode) {
  return has_zeros(mode) && !scales_sums(t, mode);
}

// Bytes of one pipeline stage: A, packed B, scale rows, zero rows. The mainloop asserts that it
// uses just these.
constexpr int stage_bytes(const TileConfig& t, int bits, ScaleMode mode) {
  return t.m * kTileK * 2 + t.n * kTileK * bits / 8 +
         scale_rows(compiled_mode(t, mode)) * t.n * 2 * (stages_zeros(t, mode) ? 2 : 1);
}
constexpr int kMaxWarps = 32;  // of a block; each keeps count of its work in shared memory
constexpr int smem_bytes(const TileConfig& t, int bits, ScaleMode mode) {
  return t.k_slices * num_stages(t, bits) * stage_bytes(t, bits, mode) + kMaxWarps * 4;
}

// THE list of compiled wgmma tiles (sm_90a): m tokens, which are the columns of the instruction, by
// n columns of weights, which are its 64 rows; warp_m, warp_n: of a warpgroup. Weights are
// converted once for all tokens of a tile, so wide tiles multiply at the rate of the tensor cores,
// and narrow ones at that of the conversion: these spend less on what is done once a k-tile with
// 256 columns, or once a stage with two k-tiles in one; the others leave more blocks to share out.
// (Two k-tiles: 0.96 to 0.98 of the time, with zero points 0.92 to 0.97 from 32 tokens on. For 32 x
// 128 with two blocks on an SM and two k-tiles 0.94 to 0.99 of three blocks with one: a third block
// has no registers for the longer loop.)
constexpr TileConfig kWgmmaTileConfigs[] = {
    {16, 256, 16, 128, 4, 2, 1, 0, 2},  //
    {32, 128, 32, 64, 6, 2, 1, 4, 2},   //
    {32, 256, 32, 128, 4, 2, 1, 0, 2},  //
    {64, 128, 64, 64, 4, 2, 1, 0, 2},   //
    {64, 256, 64, 128, 4, 1, 1, 0, 2},  //
    {128, 128, 128, 64, 6, 1},          //
    {128, 256, 128, 128, 5, 1},         //
    {256, 128, 256, 64, 4, 1},
};
constexpr int kNumWgmmaTileConfigs = sizeof(kWgmmaTileConfigs) / sizeof(kWgmmaTileConfigs[0]);

constexpr int kWgmmaMultipliers = 2;  // warpgroups of a block

// One scale row a k-tile or several is a matter of run time there.
enum class WgmmaMode : int { kPerChannel, kScaled, kScaledZero };
constexpr int kNumWgmmaModes = 3;
constexpr WgmmaMode wgmma_mode(const QuantScheme& scheme, int64_t k) {
  if (scheme.zero_mode != ZeroMode::kNone) return WgmmaMode::kScaledZero;
  return scheme.group_size >= k ? WgmmaMode::kPerChannel : WgmmaMode::kScaled;
}

// Whether zero points of groups of whole k-tiles have a loop that takes them to be whole numbers:
// 0.93 to 0.95 of the time with 16 tokens, 0.95 to 0.97 with 32, 0.97 to 0.99 with 64. With 32 x
// 128 short runs lose more by asking (0.97) than long ones gain (1.01).
constexpr bool has_whole_zeros(const TileConfig& t, WgmmaMode mode) {
  return mode == WgmmaMode::kScaledZero && (t.m == 64 || (t.m < 64 && t.n == 256));
}
// Whether others have a loop of their own as well, and the first group of a run says which
// (wgmma/whole_zeros.cuh). 16 tokens have no registers for a third loop (spills).
constexpr bool asks_for_whole_zeros(const TileConfig& t, WgmmaMode mode) {
  return has_whole_zeros(t, mode) && t.m > 16;
}
// Whether what is not whole is added behind the loop instead (wgmma/fraction_sums.cuh): 1.2 to 1.3
// of what a loop of its own takes with groups of 128, 1.4 to 1.6 with groups of 64.
constexpr bool sums_fractions(const TileConfig& t, WgmmaMode mode) {
  return has_whole_zeros(t, mode) && !asks_for_whole_zeros(t, mode);
}
// Scales of groups of whole k-tiles multiply sums where a lane has at most half as many sums as
// pairs of weights of a group of 128: 0.92 to 0.97 of the time. Not beside zero points that are no
// whole numbers: what is left of these would be an instruction more for each weight.
constexpr bool scales_sums(const TileConfig& t, WgmmaMode mode) {
  return t.m <= 32 && (mode == WgmmaMode::kScaled || has_whole_zeros(t, mode));
}
// Blocks on an SM. 32 x 256: the sums of a group have no registers beside another block's, and with
// zero points the next group's are loaded ahead (wgmma/weight_scaling.cuh): 0.94 to 1.02. 64 x 128:
// nor has the loop for whole zero points (0.97 to 1.01; spilling beside another block 0.97
// to 1.03).
constexpr int wgmma_blocks(const TileConfig& t, WgmmaMode mode) {
  const bool alone = (t.m == 32 && t.n == 256 && mode != WgmmaMode::kPerChannel) ||
                     (t.m == 64 && t.n == 128 && mode == WgmmaMode::kScaledZero);
  return alone ? 1 : t.min_blocks;
}

// Rows of scales in a k-tile: one where groups are multiples of it, else one for each half of it,
// or for each mma step.
constexpr int wgmma_scale_rows(int64_t group_size, int64_t k) {
  if (group_size >= k || group_size % kTileK == 0) return 1;
  return group_size % (kTileK / 2) == 0 ? 2 : kTileK / kMmaK;
}
// Up to 32 tokens a third loop has no registers (wgmma would be serialized, or spills).
constexpr int max_wgmma_scale_rows(const TileConfig& t) { return t.m <= 32 ? 2 : kTileK / kMmaK; }

// Stages, and k-tiles in them, begin on 1024 bytes, the period of the copy engine's permutation.
constexpr int kStageAlignment = 1024;
constexpr int wgmma_k_tile_bytes(const TileConfig& t, int bits, WgmmaMode mode) {
  const int scale_rows = mode == WgmmaMode::kPerChannel ? 0 : max_wgmma_scale_rows(t);
  return static_cast<int>(round_up(
      t.m * kTileK * 2 + t.n * kTileK * bits / 8 + scale_rows * t.n * 2 * (has_zeros(mode) ? 2 : 1),
      kStageAlignment));
}
constexpr int wgmma_smem_bytes(const TileConfig& t, int bits, WgmmaMode mode) {
  // Behind the stages: barriers, and sums of tokens of a warp each (wgmma/fraction_sums.cuh).
  const int sums = sums_fractions(t, mode) ? kWgmmaMultipliers * 4 * t.m * 4 : 0;
  const int barriers = 2 * 8 * t.stages;
  return t.stages * t.k_tiles * wgmma_k_tile_bytes(t, bits, mode) +
         static_cast<int>(round_up(barriers + sums, kStageAlignment));
}

// THE list of compiled skinny kernels: 8 * m_tiles tokens by 16 * n_tiles columns for a block whose
// warps share out K; so may the blocks of a cluster (sm_90). Every block reads the tokens of its
// part of K: wide blocks with short parts read them less often, narrow ones have less to add up.
struct SkinnyConfig {
  int m_tiles, n_tiles, warps;
};
constexpr SkinnyConfig kSkinnyConfigs[] = {
    {1, 1, 8}, {1, 1, 16}, {1, 2, 8}, {1, 4, 8}, {2, 4, 8},
};
constexpr int kNumSkinnyConfigs = sizeof(kSkinnyConfigs) / sizeof(kSkinnyConfigs[0]);
// Not the narrowest: what it adds before and after their short loops cost 5 to 10 %.
constexpr bool skinny_splits(const SkinnyConfig& t) { return t.n_tiles > 1; }
constexpr int kMaxSkinnyCluster = 4;  // blocks; the first one has room for the others' sums

// K of one iteration of a warp: 4 lanes of a quad, 16 bytes of weights each.
constexpr int skinny_iteration_k(int bits) { return 4 * 128 / bits; }

// Where scales enter there. kPerChannel: in the epilogue; kCoarse: groups are multiples of an
// iteration, kHalf: of half of one, kQuarter: of a lane's quarter of one, and fp32 partial sums are
// scaled; kBlock: multiples of that quarter as well, kFine: of an mma, and converted weights are.
enum class SkinnyMode : int {
  kPerChannel,
  kCoarse,
  kCoarseZero,
  kHalf,
  kHalfZero,
  kQuarter,
  kQuarterZero,
  kBlock,
  kBlockZero,
  kFine,
  kFineZero
};
constexpr int kNumSkinnyModes = 11;
constexpr bool scales_weights(SkinnyMode mode) { return mode >= SkinnyMode::kBlock; }
// With 16 tokens two sums a tile and iteration were slower.
constexpr bool scales_halves(const SkinnyConfig& t) { return t.m_tiles == 1; }
// There the 8 columns of an mma stand for 2 tokens with each of the 4 lanes' groups. (Two mma for 4
// tokens were slower than scaling weights; a quarter of int8 is 16 k, and hardly a group.)
constexpr int kQuarterTokens = 2;
constexpr bool scales_quarters(const SkinnyConfig& t, int bits) {
  return bits == 4 && t.m_tiles == 1;
}
// Scales wait in shared memory (skinny/scale_stage.cuh): as measured.
constexpr bool stages_scales(const SkinnyConfig& t, SkinnyMode mode) {
  const bool wide = t.n_tiles == 4, one = t.m_tiles == 1;
  return mode == SkinnyMode::kCoarseZero || mode == SkinnyMode::kHalfZero ||
         (wide && (mode == SkinnyMode::kCoarse || mode == SkinnyMode::kHalf)) ||
         (one && wide &&
          (mode == SkinnyMode::kBlock || mode == SkinnyMode::kQuarter ||
           mode == SkinnyMode::kQuarterZero)) ||
         (one && t.n_tiles > 1 && mode == SkinnyMode::kBlockZero);
}
constexpr SkinnyMode skinny_mode(const SkinnyConfig& t, const QuantScheme& scheme, int64_t m,
                                 int64_t k) {
  const bool one = scheme.group_size >= k, zeros = scheme.zero_mode != ZeroMode::kNone;
  const bool adds = scheme.zero_mode == ZeroMode::kAdd;  // scaled weights only
  const auto fits = [&](int64_t unit) { return !adds && (one || scheme.group_size % unit == 0); };
  const int iteration = skinny_iteration_k(scheme.bits);
  if (one && !zeros) return SkinnyMode::kPerChannel;
  if (fits(iteration)) return zeros ? SkinnyMode::kCoarseZero : SkinnyMode::kCoarse;
  if (scales_halves(t) && fits(iteration / 2)) {
    return zeros ? SkinnyMode::kHalfZero : SkinnyMode::kHalf;
  }
  if (scales_quarters(t, scheme.bits) && fits(iteration / 4) && m <= kQuarterTokens) {
    return zeros ? SkinnyMode::kQuarterZero : SkinnyMode::kQuarter;
  }
  if (one || scheme.group_size % (iteration / 4) == 0) {
    return zeros ? SkinnyMode::kBlockZero : SkinnyMode::kBlock;
  }
  return zeros ? SkinnyMode::kFineZero : SkinnyMode::kFine;
}

}  // namespace mixed_gemm
