#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

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
constexpr unsigned skinny_modes() { return 0; }
template <typename... More>
constexpr unsigned skinny_modes(SkinnyMode mode, More... more) {
  return 1u << static_cast<int>(mode) | skinny_modes(more...);
}

// THE list of compiled skinny kernels: 8 * m_tiles tokens by 16 * n_tiles columns for a block whose
// warps share out K; so may the blocks of a cluster (sm_90). Every block reads the tokens of its
// part of K: wide blocks with short parts read them less often, narrow ones have less to add up.
struct SkinnyConfig {
  int m_tiles, n_tiles, warps;
  unsigned staged;  // the modes whose scales wait in shared memory (skinny/scale_stage.cuh)
};
constexpr SkinnyConfig skinny_row(int tokens, int columns, int warps, unsigned staged) {
  return {tokens / 8, columns / 16, warps, staged};
}

// As measured: with zero points always, in wide blocks nearly always.
constexpr unsigned kStagedNarrow = skinny_modes(SkinnyMode::kCoarseZero, SkinnyMode::kHalfZero);
constexpr unsigned kStagedMiddle = kStagedNarrow | skinny_modes(SkinnyMode::kBlockZero);
constexpr unsigned kStagedSixteen =
    kStagedNarrow | skinny_modes(SkinnyMode::kCoarse, SkinnyMode::kHalf);
constexpr unsigned kStagedWide =
    kStagedMiddle | kStagedSixteen |
    skinny_modes(SkinnyMode::kBlock, SkinnyMode::kQuarter, SkinnyMode::kQuarterZero);

constexpr SkinnyConfig kSkinnyConfigs[] = {
    skinny_row(/*tokens=*/8, /*columns=*/16, /*warps=*/8, kStagedNarrow),
    skinny_row(8, 16, 16, kStagedNarrow),
    skinny_row(8, 32, 8, kStagedMiddle),
    skinny_row(8, 64, 8, kStagedWide),
    skinny_row(16, 64, 8, kStagedSixteen),
};
constexpr int kNumSkinnyConfigs = sizeof(kSkinnyConfigs) / sizeof(kSkinnyConfigs[0]);
// Not the narrowest: what it adds before and after their short loops cost 5 to 10 %.
constexpr bool skinny_splits(const SkinnyConfig& t) { return t.n_tiles > 1; }
constexpr int kMaxSkinnyCluster = 4;  // blocks; the first one has room for the others' sums

// K of one iteration of a warp: 4 lanes of a quad, 16 bytes of weights each.
constexpr int skinny_iteration_k(WeightType weight) { return 4 * 128 / bits_of(weight); }

constexpr int kNumSkinnyModes = 11;
constexpr bool has_zeros(SkinnyMode mode) {
  return mode == SkinnyMode::kCoarseZero || mode == SkinnyMode::kHalfZero ||
         mode == SkinnyMode::kQuarterZero || mode == SkinnyMode::kBlockZero ||
         mode == SkinnyMode::kFineZero;
}
constexpr bool scales_weights(SkinnyMode mode) { return mode >= SkinnyMode::kBlock; }
// With 16 tokens two sums a tile and iteration were slower.
constexpr bool scales_halves(const SkinnyConfig& t) { return t.m_tiles == 1; }
// There the 8 columns of an mma stand for 2 tokens with each of the 4 lanes' groups. (Two mma for 4
// tokens were slower than scaling weights; a quarter of int8 is 16 k, and hardly a group.)
constexpr int kQuarterTokens = 2;
constexpr bool scales_quarters(const SkinnyConfig& t, WeightType weight) {
  return bits_of(weight) <= 4 && t.m_tiles == 1;
}
// Warps that an SM is to hold, by mma tiles of a warp. weight: 0 to 2, how many registers the scale
// mode takes beside those of the tiles.
constexpr int skinny_resident_warps(int tiles, int weight) {
  constexpr int kByWeight[][3] = {
      {32, 24, 16}, {24, 16, 16}, {16, 16, 8}, {8, 8, 8}};  // one, two, four, eight tiles
  return kByWeight[tiles < 4 ? tiles - 1 : tiles / 4 + 1][weight];
}

constexpr bool stages_scales(const SkinnyConfig& t, SkinnyMode mode) {
  return (t.staged >> static_cast<int>(mode) & 1) != 0;
}
constexpr SkinnyMode skinny_mode(const SkinnyConfig& t, const QuantScheme& scheme, int64_t m,
                                 int64_t k) {
  const bool one = scheme.scales.group >= k, zeros = scheme.scales.zeros != ZeroMode::kNone;
  const bool adds = scheme.scales.zeros == ZeroMode::kAdd;  // scaled weights only
  const auto fits = [&](int64_t part) { return !adds && (one || scheme.scales.group % part == 0); };
  const int iteration = skinny_iteration_k(scheme.weight);
  if (one && !zeros) return SkinnyMode::kPerChannel;
  if (fits(iteration)) return zeros ? SkinnyMode::kCoarseZero : SkinnyMode::kCoarse;
  if (scales_halves(t) && fits(iteration / 2)) {
    return zeros ? SkinnyMode::kHalfZero : SkinnyMode::kHalf;
  }
  if (scales_quarters(t, scheme.weight) && fits(iteration / 4) && m <= kQuarterTokens) {
    return zeros ? SkinnyMode::kQuarterZero : SkinnyMode::kQuarter;
  }
  if (one || scheme.scales.group % (iteration / 4) == 0) {
    return zeros ? SkinnyMode::kBlockZero : SkinnyMode::kBlock;
  }
  return zeros ? SkinnyMode::kFineZero : SkinnyMode::kFine;
}

}  // namespace mixed_gemm
