// Where scales enter the multistage mainloop, and the shared memory that its stages take. why_not
// and the cost models read it at run time; the kernels assert that they use just this.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "core/tile.h"

namespace mixed_gemm {

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

constexpr bool has_zeros(ScaleMode mode) {
  return mode == ScaleMode::kCoarseZero || mode == ScaleMode::kHalfZero ||
         mode == ScaleMode::kFineZero;
}
constexpr int scale_rows(ScaleMode mode) {
  constexpr int kRows[kNumScaleModes] = {0, 1, 1, 2, 2, kTileK / kMmaK, kTileK / kMmaK};
  return kRows[static_cast<int>(mode)];
}
constexpr bool includes(ForModes modes, ScaleMode mode) {
  return includes(modes, has_zeros(mode)        ? ForModes::kZeros
                         : scale_rows(mode) > 0 ? ForModes::kGroups
                                                : ForModes::kChannels);
}
// The mode of the kernel that runs for `mode`. Only tiles of 16 tokens have one for halves: in
// others scales are a smaller part of the work, and it would take half as long again to compile.
constexpr ScaleMode compiled_mode(const TileConfig& t, ScaleMode mode) {
  if (t.halves || scale_rows(mode) != 2) return mode;
  return has_zeros(mode) ? ScaleMode::kFineZero : ScaleMode::kFine;
}

constexpr ScaleMode scale_mode(const QuantScheme& scheme, int64_t k) {
  const bool zeros = scheme.scales.zeros != ZeroMode::kNone;
  const bool one_group = scheme.scales.group >= k;
  if (one_group && !zeros) return ScaleMode::kPerChannel;
  if (one_group || scheme.scales.group % kTileK == 0)
    return zeros ? ScaleMode::kCoarseZero : ScaleMode::kCoarse;
  if (scheme.scales.group % (kTileK / 2) == 0) {
    return zeros ? ScaleMode::kHalfZero : ScaleMode::kHalf;
  }
  return zeros ? ScaleMode::kFineZero : ScaleMode::kFine;
}

// Scales meet fp32 sums there (mainloop/group_scaling.cuh), not weights. With 32 tokens there are
// as many sums as weights, and their registers cost a resident block: 4 to 14 % slower.
// Convolutions, which have slices of K, keep one group a k-tile.
constexpr bool scales_sums(const TileConfig& t, ScaleMode mode) {
  return t.scales_sums && mode != ScaleMode::kPerChannel && scale_rows(mode) == 1;
}
// Rows of zero points beside those of scales. Where sums are scaled they take another way
// (mainloop/zero_products.cuh).
constexpr bool stages_zeros(const TileConfig& t, ScaleMode mode) {
  return has_zeros(mode) && !scales_sums(t, mode);
}

// Bytes of one pipeline stage: A, packed B, scale rows, zero rows. The mainloop asserts that it
// uses just these.
constexpr int stage_bytes(const TileConfig& t, WeightType weight, ScaleMode mode) {
  return t.m * kTileK * 2 + t.n * kTileK * bits_of(weight) / 8 +
         scale_rows(compiled_mode(t, mode)) * t.n * 2 * (stages_zeros(t, mode) ? 2 : 1);
}
constexpr int smem_bytes(const TileConfig& t, WeightType weight, ScaleMode mode) {
  return t.k_warps * num_stages(t, weight) * stage_bytes(t, weight, mode) + kMaxWarps * 4;
}

}  // namespace mixed_gemm
