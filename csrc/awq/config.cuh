// One compiled AWQ kernel as a type.
#pragma once
#include "awq/config.h"
#include "awq/converter.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Element_, int kRow_, bool kFine_>
struct AwqGemmConfig {
  using Element = Element_;
  using Format = typename FormatOf<Element>::Type;
  static constexpr AwqConfig kRow = kAwqConfigs[kRow_];
  static constexpr int kMTiles = kRow.m_tiles, kWords = kRow.words, kNWarps = kRow.n_warps;
  static constexpr int kStepK = 32, kSteps = kAwqUnitK / kStepK;
  static constexpr int kM = 8 * kMTiles, kN = 64 * kWords * kNWarps;  // of a block

  static constexpr bool kWholeLines = kRow.whole_lines;
  static constexpr bool kFine = kFine_;  // a unit may have several groups
  // A thread of 12 warps has 168, and bf16 needs more constants.
  static constexpr bool kRegistersShort =
      kMTiles >= 2 && Format::kMantissaBits == BFloat16::kMantissaBits;
  static constexpr int kMaxThreads = 32 * awq_max_warps(kRow, kFine);
  // Scales meet the fp32 sums of a unit; with many tokens there are fewer weights than sums.
  static constexpr bool kScalesSums = !kFine && kMTiles <= 2;
};

}  // namespace mixed_gemm
