// One compiled skinny kernel as a type.
#pragma once
#include "dequant/offset_converter.h"
#include "dequant/stored_converter.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kBeforeSm90 = true;
#else
constexpr bool kBeforeSm90 = false;
#endif

template <typename Element_, int kBits_, SkinnyMode kMode_, int kRow_>
struct SkinnyGemmConfig {
  using Element = Element_;
  using Format = typename FormatOf<Element>::Type;
  static constexpr bool kBFloat16 = Format::kMantissaBits == BFloat16::kMantissaBits;
  static constexpr int kBits = kBits_;
  static constexpr SkinnyMode kMode = kMode_;
  static constexpr SkinnyConfig kRow = kSkinnyConfigs[kRow_];

  static constexpr int kThreads = kRow.warps * 32;
  static constexpr int kMTiles = kRow.m_tiles, kNTiles = kRow.n_tiles;
  static constexpr bool kSplits = skinny_splits(kRow);
  static constexpr bool kQuarter =
      kMode == SkinnyMode::kQuarter || kMode == SkinnyMode::kQuarterZero;
  static constexpr int kTokensPerTile = kQuarter ? kQuarterTokens : 8;
  static constexpr int kM = kTokensPerTile * kMTiles, kN = 16 * kNTiles;  // of a block
  static constexpr int kBlockK = 128 / kBits;  // elements in the 16 bytes of a lane
  static constexpr int kIterationK = skinny_iteration_k(kBits);
  static constexpr int kVectors = kBlockK / 8;  // 16-byte activation vectors of a lane
  // Activations in shared memory (token_stage.cuh). Where registers are left for it, wide blocks of
  // 8 tokens as well: bf16 4 to 7 % faster at M = 8; fp16 spills, or is level.
  static constexpr bool kStaged = kMTiles > 1 || (kNTiles == 4 && kBits == 4 && kBFloat16 &&
                                                  kMode == SkinnyMode::kCoarse);
  static constexpr bool kScaled = kMode != SkinnyMode::kPerChannel;
  static constexpr bool kHalf = kMode == SkinnyMode::kHalf || kMode == SkinnyMode::kHalfZero;
  static constexpr bool kFine = kMode == SkinnyMode::kFine || kMode == SkinnyMode::kFineZero;
  static constexpr bool kZeros = has_zeros(kMode);
  static constexpr bool kScalesWeights = scales_weights(kMode);
  // Partial sums are scaled, those of each part of an iteration by its own scale.
  static constexpr bool kScalesSums = kScaled && !kScalesWeights;
  static constexpr int kParts = kHalf ? 2 : 1;
  // Scales of a lane are those of its own block, or the same for a quad; of so many k each.
  static constexpr bool kOwnScales = kQuarter || kScalesWeights;
  static constexpr int kUnitK = kFine ? kMmaK : kOwnScales ? kBlockK : kIterationK / kParts;
  static constexpr int kUnits = kOwnScales ? kBlockK / kUnitK : kParts;  // of a lane and iteration
  // Weights of wide blocks stay as they are stored, and the sums are corrected with those of the
  // tokens, which all tiles share (dequant/stored_converter.h). fp16 3 to 5 % faster than with
  // conversions, zero points 9 %, and 4 % in bf16; bf16 without them level, or slower with 16
  // tokens. Narrow blocks have too few tiles to pay for the sums, and spill.
  static constexpr bool kStored = kNTiles == 4 && kBits == 4 && !kScalesWeights &&
                                  !(kQuarter && kZeros) && (!kBFloat16 || (kZeros && kMTiles == 1));
  // Zero points inside the constants of the conversion: halves have no registers for it.
  static constexpr bool kFolds =
      kScalesSums && kZeros && !kHalf && !kQuarter && !kStored && kHasOffsets<Format, kBits>;
  // Without them it saves two shifts a word of int4 as bf16: 1 to 4 %. (Two tiles of halves spill.)
  static constexpr bool kOffsets =
      kFolds || (!kZeros && !kFine && kBFloat16 && kBits == 4 && !(kHalf && kNTiles == 2));
  using Converter = std::conditional_t<kStored, StoredConverter<Format, /*kOneUnit=*/false>,
                                       std::conditional_t<kOffsets, OffsetConverter<Format, kBits>,
                                                          IntegerConverter<Format, kBits>>>;
  // A tile's next weights are requested before its last products, not after them: 1 to 2 %.
  // (fp16 with four tiles has no registers for it.)
  static constexpr bool kRequestsEarly =
      kMTiles == 1 && (kNTiles == 1 || !(kZeros || kHalf)) && (kNTiles < 4 || kBFloat16);

  // Warps of an SM hide each other's latency, so registers are capped for as many as do not spill.
  static constexpr bool kHeavy =
      (kScalesWeights && (kZeros || (kNTiles == 2 && kFine) || kBeforeSm90)) ||
      (kNTiles == 2 && kZeros && (kHalf || (kQuarter && !kBFloat16))) ||
      (kNTiles == 2 && kHalf && kBFloat16 && kBits == 8) ||
      (kBeforeSm90 && (kZeros || kHalf || kQuarter || kBFloat16));
  static constexpr bool kHeaviest =
      kScalesWeights && kZeros && (kNTiles == 4 || (kBeforeSm90 && kBFloat16));
  static constexpr int kResidentByWeight[][3] = {
      {32, 24, 16}, {24, 16, 16}, {16, 16, 8}, {8, 8, 8}};  // one, two, four, eight tiles
  static constexpr int kTiles = kMTiles * kNTiles;
  static constexpr bool kLarge = kTiles >= 4;
  static constexpr int kResidentWarps =
      kResidentByWeight[kTiles < 4 ? kTiles - 1 : kTiles / 4 + 1][kHeavy + kHeaviest];
  static constexpr int kMinBlocks = kResidentWarps / kRow.warps;
};

}  // namespace mixed_gemm
