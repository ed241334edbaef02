// How the warps of a block share an output tile, for any table of tiles and any mma.m16n8.
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

template <typename Tiles, int kRow>
struct WarpTiling {
  static constexpr TileConfig kTile = Tiles::row(kRow);
  static constexpr int kThreads = num_threads(kTile);
  static constexpr int kKWarps = kTile.k_warps;
  static constexpr int kSliceThreads = kThreads / kKWarps;  // these copy and multiply together
  static constexpr int kWarpsM = kTile.m / kTile.warp_m;
  static constexpr int kStages = kTile.stages;
  static constexpr int kMmaM = kTile.warp_m / 16;  // mma.m16n8 tiles of a warp
  static constexpr int kMmaN = kTile.warp_n / 8;
  static constexpr int kAccumulators = kMmaM * kMmaN * 4;

  static __device__ int slice(int thread) { return kKWarps > 1 ? thread / kSliceThreads : 0; }
  static __device__ int thread_of_slice(int thread) {
    return kKWarps > 1 ? thread % kSliceThreads : thread;
  }

  // The first row of the warp's part of the tile. Warps that share out K all have the whole tile.
  static __device__ int warp_row(int thread) {
    return kKWarps > 1 ? 0 : thread / 32 % kWarpsM * kTile.warp_m;
  }
  static __device__ int warp_column(int thread) {
    return kKWarps > 1 ? 0 : thread / 32 / kWarpsM * kTile.warp_n;
  }

  static_assert(kTile.m % kTile.warp_m == 0 && kTile.n % kTile.warp_n == 0,
                "warps must cover the tile");
  static_assert(kTile.warp_m % 16 == 0, "A is loaded by 16 rows");
  static_assert(kKWarps == 1 || kSliceThreads == 32, "a slice of K is one warp's");
  static_assert(kStages >= 2, "a tile is computed while the next one arrives");
};

}  // namespace mixed_gemm
