// One compiled wgmma kernel as a type. Weights are the operand of 64 rows, from registers; tokens
// the one of up to 256 columns, from shared memory, so that the tile's M is an extent of the
// instruction.
#pragma once
#include "cutlass/array.h"
#include "dequant/folding_converter.h"
#include "dequant/pair_table.cuh"
#include "hopper/warp_roles.cuh"
#include "mainloop/gemm_config.cuh"
#include "wgmma/config.h"

namespace mixed_gemm {

// kGrouped_: whether rows belong to experts with a weight each.
template <typename Element_, typename Weight_, int kMode, int kRow, bool kGrouped_ = false>
struct WgmmaConfig
    : WarpRoles<wgmma_blocks(kWgmmaTileConfigs[kRow], Weight_::kType, kWgmmaModes[kMode])> {
  using Element = Element_;
  using Factor = FactorOf<Element, Weight_>;
  using Format = typename FormatOf<Element>::Type;
  using Weight = Weight_;
  using Layout = WeightLayout<Weight>;
  static constexpr ScaleMode kScales = kWgmmaModes[kMode];
  static constexpr bool kScaled = is_scaled(kScales);
  static constexpr bool kZeros = kScales.zeros;
  static constexpr bool kGrouped = kGrouped_;
  static constexpr TileConfig kTile = kWgmmaTileConfigs[kRow];
  static constexpr bool kHasTable = Weight::kHasBook;
  using Pairs = PairTable<Format, has_wide_table(kTile, Weight::kType)>;
  using Converter = std::conditional_t<kHasTable, Pairs, FoldingConverter<Format, Weight>>;
  static constexpr int kStages = wgmma_stages(kTile, Weight::kType, kScales);

  static constexpr int kRowTiles = kTile.n / (64 * WgmmaConfig::kMultipliers);  // of 64 weight rows
  static constexpr int kSumsPerTile = kTile.m / 2;                              // of a thread
  static constexpr int kSums = kRowTiles * kSumsPerTile;
  using Sums = cutlass::Array<float, kSums>;
  static_assert(kTile.n % 128 == 0 && kTile.m % 16 == 0 && kTile.m <= 256, "what wgmma takes");

  // The first column of weights that warp `warp` of the multipliers has in row tile t.
  static __device__ int column(int warp, int t) {
    return warp / 4 * (64 * kRowTiles) + 64 * t + warp % 4 * 16;
  }

  // A k-tile in a stage of the pipeline: tokens, weights, scale rows, zero rows.
  static constexpr int kTokenBytes = kTile.m * kTileK * 2;
  static constexpr int kWeightBytes = kTile.n * kTileK * Weight::kBits / 8;
  static constexpr int kScaleRowBytes = kTile.n * scale_bytes(kScales.type);
  static constexpr int kScaleRows =
      kScaled ? max_wgmma_scale_rows(kTile, Weight::kType, kScales) : 0;
  static constexpr int kScaleBytes = kScaleRows * kScaleRowBytes;
  static constexpr int kKTileBytes = wgmma_k_tile_bytes(kTile, Weight::kType, kScales);
  static constexpr int kStageBytes = kTile.k_tiles * kKTileBytes;
  static_assert(kTokenBytes + kWeightBytes + kScaleBytes * (kZeros ? 2 : 1) <= kKTileBytes, "");
};

}  // namespace mixed_gemm
