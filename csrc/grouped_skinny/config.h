#pragma once
#include "problem/grouped_gemm.h"
#include "skinny/config.h"

namespace mixed_gemm {

constexpr int skinny_row_of(int tokens, int columns) {
  for (int row = 0; row < kNumSkinnyConfigs; ++row) {
    const SkinnyConfig& t = kSkinnyConfigs[row];
    if (8 * t.m_tiles == tokens && 16 * t.n_tiles == columns) return row;
  }
  throw "no such kernel";  // at compile time
}

// THE list of skinny kernels whose rows belong to experts: rows of kSkinnyConfigs. The narrowest
// blocks are left out, since several experts make enough blocks of more columns.
constexpr int kGroupedSkinnyRows[] = {skinny_row_of(8, 32), skinny_row_of(8, 64),
                                      skinny_row_of(16, 64)};
constexpr int kNumGroupedSkinny = sizeof(kGroupedSkinnyRows) / sizeof(kGroupedSkinnyRows[0]);

// Whether there is a kernel for a weight type; books of values have none. Nor has the mode of two
// tokens, since nobody knows how many rows an expert has.
constexpr bool is_grouped_skinny_compiled(int row, WeightType weight, int mode) {
  const SkinnyScaleRows& rows = kSkinnyModes[mode];
  const bool quarter = rows.blocks == 1 && rows.meets == Meets::kSums;
  return !weight_info(weight).has_book && !quarter &&
         is_skinny_compiled(kSkinnyConfigs[kGroupedSkinnyRows[row]], weight, mode);
}

// The place of the mode of a problem; -1: there is none.
constexpr int grouped_skinny_mode(int row, const QuantScheme& scheme, int64_t k) {
  if (weight_info(scheme.weight).has_book) return -1;
  return skinny_mode(kSkinnyConfigs[kGroupedSkinnyRows[row]], scheme, kQuarterTokens + 1, k);
}

}  // namespace mixed_gemm
