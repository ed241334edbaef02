// One compiled skinny kernel as a type.
#pragma once
#include "dequant/offset_converter.h"
#include "dequant/pair_table.cuh"
#include "dequant/stored_converter.h"
#include "dequant/weight_converter.h"
#include "mainloop/gemm_config.cuh"
#include "skinny/config.h"

namespace mixed_gemm {

// kGrouped_: whether rows belong to experts, and pointers begin with those of a block.
template <typename Element_, typename Weight_, int kMode_, int kRow_, bool kGrouped_ = false>
struct SkinnyGemmConfig {
  using Element = Element_;
  using Factor = FactorOf<Element, Weight_>;
  using Format = typename FormatOf<Element>::Type;
  static constexpr bool kBFloat16 = Format::kMantissaBits == BFloat16::kMantissaBits;
  using Weight = Weight_;
  static constexpr int kMode = kMode_;
  static constexpr bool kGrouped = kGrouped_;
  static constexpr SkinnyScaleRows kScaleRows = kSkinnyModes[kMode];
  static constexpr ScaleMode kScales = skinny_scales(Weight::kType, kMode);
  static constexpr SkinnyConfig kRow = kSkinnyConfigs[kRow_];

  static constexpr int kThreads = kRow.warps * 32;
  static constexpr int kMTiles = kRow.m_tiles, kNTiles = kRow.n_tiles;
  static constexpr bool kSplits = skinny_splits(kRow);
  static constexpr bool kQuarter = kScaleRows.blocks == 1 && kScales.meets == Meets::kSums;
  static constexpr int kTokensPerTile = kQuarter ? kQuarterTokens : 8;
  static constexpr int kM = kTokensPerTile * kMTiles, kN = 16 * kNTiles;  // of a block
  static constexpr int kBlockK = skinny_block_k(Weight::kType);
  static constexpr int kIterationK = skinny_iteration_k(Weight::kType);
  static constexpr int kVectors = kBlockK / 8;  // 16-byte activation vectors of a lane
  static constexpr bool kStaged = kMTiles > 1;  // activations in shared memory (token_stage.cuh)
  static constexpr bool kScaled = is_scaled(kScales);
  static constexpr bool kHalf = kScaleRows.blocks == 2;
  static constexpr bool kFine = kScaleRows.blocks == kMmaOfBlock;
  static constexpr bool kZeros = kScales.zeros;
  static constexpr bool kScalesWeights = kScales.meets == Meets::kWeights;
  // Partial sums are scaled, each part of an iteration by its own scale.
  static constexpr bool kScalesSums = kScaled && !kScalesWeights;
  static constexpr int kParts = kHalf ? 2 : 1;
  // A lane has the scales of its own block, or those of its quad. Each serves kGroupStepK elements
  // of K, and a lane has kGroupSteps of them in an iteration.
  static constexpr bool kOwnScales = kQuarter || kScalesWeights;
  static constexpr int kGroupStepK = kFine ? kMmaK : kOwnScales ? kBlockK : kIterationK / kParts;
  static constexpr int kGroupSteps = kOwnScales ? kBlockK / kGroupStepK : kParts;
  static constexpr bool kStagesScales = stages_scales(kRow, kMode);
  // Zero points leave with the sums of the tokens, which all tiles share: 5 % faster than inside
  // the constants of the conversion. So does the bias of weights that stay as they are stored
  // (dequant/stored_converter.h), 3 to 9 % faster than with conversions; without zero points in
  // blocks of 64 columns only, since narrow ones have too few tiles to pay for the sums (2 to 3 %
  // slower), and in bf16 of 8 tokens.
  static constexpr bool kSumsTokens =
      kScalesSums && !kQuarter &&
      (kZeros || (kHasStored<Weight> && kNTiles == 4 && kMTiles == 1 && (kHalf || kBFloat16)));
  // (16 columns in halves of fp16 would spill.)
  static constexpr bool kStored =
      kHasStored<Weight> &&
      (kSumsTokens ? (kNTiles == 4 && !kBFloat16) ||
                         (kMTiles == 1 && !(kNTiles == 1 && kHalf && !kBFloat16))
                   : kNTiles == 4 && !kScalesWeights && !(kQuarter && kZeros) && !kBFloat16);
  // Constants that save two shifts a word of int4 as bf16: 1 to 4 %. (Two tiles of halves spill.)
  static constexpr bool kOffsets = (!kZeros || kSumsTokens) && !kStored && !kFine && kBFloat16 &&
                                   kHasOffsets<Format, Weight> && !(kHalf && kNTiles == 2);
  static constexpr bool kHasTable = Weight::kHasBook;
  // A wide table leaves an SM enough warps beside wide tiles alone.
  using Pairs = PairTable<Format, /*kWide=*/kNTiles == 4 && kMTiles == 1>;
  using Converter = std::conditional_t<
      kHasTable, Pairs,
      std::conditional_t<kStored, StoredConverter<Format, Weight, /*kOneScale=*/false>,
                         std::conditional_t<kOffsets, ConstantOffsetConverter<Format, Weight>,
                                            WeightConverter<Format, Weight>>>>;
  // A tile's next weights are requested before its last products, not after them: 1 to 2 %.
  // (fp16 with four tiles has no registers for it, nor one with weights as they are stored.)
  static constexpr bool kRequestsEarly =
      kMTiles == 1 && (kNTiles < 4 || kBFloat16) &&
      (kNTiles == 1 ? !kStored : !kHalf && (!kZeros || kSumsTokens));
  // Addresses are made before a block waits for the kernel before it (grid/pdl.cuh): 2 to 5 % with
  // 32 columns. All others had rather have their warps begin one by one: 16 columns 0 to 8 %
  // slower, 64 columns 1 %.
  static constexpr bool kEarlyAddresses = kNTiles == 2 && !kHalf && !kQuarter;
  // Warps of an SM hide each other's latency, so registers are capped for as many as do not spill.
  static constexpr bool kHeavy =
      (kScalesWeights && ((kZeros && !kStagesScales) || (kNTiles == 2 && kFine) || kBeforeSm90)) ||
      (kNTiles == 2 && kZeros && (kHalf || (kQuarter && !kBFloat16))) ||
      (kNTiles == 2 && kHalf && kBFloat16 && Weight::kBits > 4) ||
      (kBeforeSm90 && (kZeros || kHalf || kQuarter || kBFloat16));
  static constexpr bool kHeaviest =
      kScalesWeights && kZeros && !kStagesScales && (kNTiles == 4 || (kBeforeSm90 && kBFloat16));
  static constexpr int kTiles = kMTiles * kNTiles;
  static constexpr bool kLarge = kTiles >= 4;
  static constexpr int kResidentWarps = skinny_resident_warps(kTiles, kHeavy + kHeaviest);
  static constexpr int kMinBlocks = kResidentWarps / kRow.warps;
};

}  // namespace mixed_gemm
