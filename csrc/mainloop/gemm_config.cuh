// One compiled kernel as a type: element, weight bits, scale mode and a row of kTileConfigs, with
// what follows from them.
#pragma once
#include "core/half_arithmetic.h"
#include "core/tile_config.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace mixed_gemm {

template <typename Element>
struct FormatOf;
template <>
struct FormatOf<cutlass::half_t> {
  using Type = Half;
};
template <>
struct FormatOf<cutlass::bfloat16_t> {
  using Type = BFloat16;
};

template <typename Element_, int kBits_, ScaleMode kMode_, int kRow_>
struct GemmConfig {
  using Element = Element_;
  using Format = typename FormatOf<Element>::Type;
  static constexpr int kBits = kBits_;
  static constexpr ScaleMode kMode = kMode_;
  static constexpr TileConfig kTile = kTileConfigs[kRow_];

  static constexpr int kThreads = num_threads(kTile);
  static constexpr int kWarpsM = kTile.m / kTile.warp_m;
  static constexpr int kStages = kTile.stages;
  static constexpr int kSteps = kTileK / kMmaK;    // mma steps in a k-tile
  static constexpr int kMmaM = kTile.warp_m / 16;  // mma.m16n8k16 tiles of a warp
  static constexpr int kMmaN = kTile.warp_n / 8;
  static constexpr int kAccumulators = kMmaM * kMmaN * 4;

  // Of the warp's part of the tile.
  static __device__ int warp_row(int thread) { return thread / 32 % kWarpsM * kTile.warp_m; }
  static __device__ int warp_column(int thread) { return thread / 32 / kWarpsM * kTile.warp_n; }

  static_assert(kTile.m % kTile.warp_m == 0 && kTile.n % kTile.warp_n == 0,
                "warps must cover the tile");
  static_assert(kTile.warp_m % 16 == 0 && kTile.warp_n % 32 == 0,
                "A is loaded by 16 rows, B by 32 columns");
  static_assert(kStages >= 2, "a tile is computed while the next one arrives");
};

}  // namespace mixed_gemm
