#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "mainloop/scale_mode.h"

namespace mixed_gemm {

// The K of a block, the 16 bytes of weights of a lane, and of one iteration of a warp: a block of
// each of the 4 lanes of a quad.
constexpr int skinny_block_k(WeightType weight) { return 128 / bits_of(weight); }
constexpr int skinny_iteration_k(WeightType weight) { return 4 * skinny_block_k(weight); }

// THE list of the family's scale modes: a row of scales serves the four blocks of an iteration,
// half of them, or one, whose fp32 sums are scaled; one block whose weights are scaled; or the
// weights of an mma step.
constexpr int kMmaOfBlock = -1;
struct SkinnyScaleRows {
  int blocks;  // 0: all of K, in the epilogue
  Meets meets;
  bool zeros;
};
constexpr SkinnyScaleRows kSkinnyModes[] = {
    {0, Meets::kOutputs, false},
    {4, Meets::kSums, false},
    {4, Meets::kSums, true},
    {2, Meets::kSums, false},
    {2, Meets::kSums, true},
    {1, Meets::kSums, false},
    {1, Meets::kSums, true},
    {1, Meets::kWeights, false},
    {1, Meets::kWeights, true},
    {kMmaOfBlock, Meets::kWeights, false},
    {kMmaOfBlock, Meets::kWeights, true},
};
constexpr int kNumSkinnyModes = sizeof(kSkinnyModes) / sizeof(kSkinnyModes[0]);
constexpr ScaleMode skinny_scales(WeightType weight, int mode) {
  const SkinnyScaleRows& rows = kSkinnyModes[mode];
  const int row_k = rows.blocks == kMmaOfBlock ? kMmaK : rows.blocks * skinny_block_k(weight);
  return {row_k, rows.zeros, rows.meets};
}
// A set of places in the list.
constexpr unsigned skinny_modes(int blocks, Meets meets, bool zeros) {
  unsigned found = 0;
  for (int i = 0; i < kNumSkinnyModes; ++i) {
    const SkinnyScaleRows& rows = kSkinnyModes[i];
    if (rows.blocks == blocks && rows.meets == meets && rows.zeros == zeros) found |= 1u << i;
  }
  return found;
}

// THE list of compiled skinny kernels: 8 * m_tiles tokens by 16 * n_tiles columns for a block whose
// warps share out K; so may the blocks of a cluster (sm_90). Every block reads the tokens of its
// part of K: wide blocks with short parts read them less often, narrow ones have less to reduce.
struct SkinnyConfig {
  int m_tiles, n_tiles, warps;
  unsigned staged;  // the modes whose scales wait in shared memory (skinny/scale_stage.cuh)
};
constexpr SkinnyConfig skinny_row(int tokens, int columns, int warps, unsigned staged) {
  return {tokens / 8, columns / 16, warps, staged};
}

// Modes whose scales are staged, as measured: with zero points all, in wide blocks nearly all.
constexpr unsigned kStagedNarrow =
    skinny_modes(4, Meets::kSums, true) | skinny_modes(2, Meets::kSums, true);
constexpr unsigned kStagedMiddle = kStagedNarrow | skinny_modes(1, Meets::kWeights, true);
constexpr unsigned kStagedSixteen =
    kStagedNarrow | skinny_modes(4, Meets::kSums, false) | skinny_modes(2, Meets::kSums, false);
constexpr unsigned kStagedWide =
    kStagedMiddle | kStagedSixteen | skinny_modes(1, Meets::kWeights, false) |
    skinny_modes(1, Meets::kSums, false) | skinny_modes(1, Meets::kSums, true);

constexpr SkinnyConfig kSkinnyConfigs[] = {
    skinny_row(/*tokens=*/8, /*columns=*/16, /*warps=*/8, kStagedNarrow),
    skinny_row(8, 16, 16, kStagedNarrow),
    skinny_row(8, 32, 8, kStagedMiddle),
    skinny_row(8, 64, 8, kStagedWide),
    skinny_row(16, 64, 8, kStagedSixteen),
};
constexpr int kNumSkinnyConfigs = sizeof(kSkinnyConfigs) / sizeof(kSkinnyConfigs[0]);
// Whether clusters share out K. The narrowest do not: the code around short loops cost 5 to 10 %.
constexpr bool skinny_splits(const SkinnyConfig& t) { return t.n_tiles > 1; }
constexpr int kMaxSkinnyCluster = 4;  // blocks; the first one has room for the others' sums

// Whether halves of an iteration are scaled apart. With 16 tokens that was slower.
constexpr bool scales_halves(const SkinnyConfig& t) { return t.m_tiles == 1; }
// With quarters the 8 columns of an mma stand for 2 tokens with each of the 4 lanes' groups. (Two
// mma for 4 tokens were slower than scaling weights; a quarter of int8 is 16 k, hardly a group.)
constexpr int kQuarterTokens = 2;
constexpr bool scales_quarters(const SkinnyConfig& t, WeightType weight) {
  return bits_of(weight) <= 4 && t.m_tiles == 1;
}
// The warps that an SM is to hold, by mma tiles of a warp. weight: 0 to 2, how many registers the
// scale mode takes beside those of the tiles.
constexpr int skinny_resident_warps(int tiles, int weight) {
  constexpr int kByWeight[][3] = {
      {32, 24, 16}, {24, 16, 16}, {16, 16, 8}, {8, 8, 8}};  // one, two, four, eight tiles
  return kByWeight[tiles < 4 ? tiles - 1 : tiles / 4 + 1][weight];
}

constexpr bool stages_scales(const SkinnyConfig& t, int mode) {
  return (t.staged >> mode & 1) != 0;
}

// Whether there is a kernel of a row and mode for a weight type. why_not and the launchers read it.
constexpr bool is_skinny_compiled(const SkinnyConfig& t, WeightType weight, int mode) {
  if (mode < 0) return false;
  const SkinnyScaleRows& rows = kSkinnyModes[mode];
  const WeightInfo info = weight_info(weight);
  if (!info.is_integer) {
    // Converted floats are over a power of two, down to subnormal numbers, which scales take back
    // before weights are multiplied. Values of a book are those that they are.
    const bool meets =
        rows.meets == Meets::kWeights || (rows.meets == Meets::kSums && info.has_book);
    if (rows.zeros || !meets) return false;
  }
  if (skinny_scales(weight, mode).row_k == kMmaK && info.least_group > kMmaK) return false;
  if (rows.blocks == 2) return scales_halves(t);
  if (rows.blocks == 1 && rows.meets == Meets::kSums) return scales_quarters(t, weight);
  return rows.blocks != kMmaOfBlock || skinny_block_k(weight) > kMmaK;  // or a block is one
}

// The place of the mode of a problem; -1: there is none.
constexpr int skinny_mode(const SkinnyConfig& t, const QuantScheme& scheme, int64_t m, int64_t k) {
  const bool one = scheme.scales.group >= k, zeros = scheme.scales.zeros != ZeroMode::kNone;
  const bool adds = scheme.scales.zeros == ZeroMode::kAdd;  // scaled weights only
  const auto fits = [&](const ScaleMode& mode) {
    if (mode.meets == Meets::kOutputs) return one && !zeros;
    if (mode.meets == Meets::kSums && adds) return false;
    if (mode.row_k != kMmaK && !one && scheme.scales.group % mode.row_k != 0) return false;
    return mode.zeros == zeros;
  };
  // The list is in the order of preference.
  for (int mode = 0; mode < kNumSkinnyModes; ++mode) {
    const SkinnyScaleRows& rows = kSkinnyModes[mode];
    const bool quarter = rows.blocks == 1 && rows.meets == Meets::kSums;
    if (quarter && m > kQuarterTokens) continue;
    if (is_skinny_compiled(t, scheme.weight, mode) && fits(skinny_scales(scheme.weight, mode))) {
      return mode;
    }
  }
  return -1;
}

}  // namespace mixed_gemm
