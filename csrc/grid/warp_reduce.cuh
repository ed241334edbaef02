// Warps that share out K (TileConfig::k_warps) reduce their sums in shared memory: each warp writes
// its sums of the whole tile to where its stages were, then reduces one part over all warps, in the
// order of the slices. So results do not depend on timing, and all warps store an equal part.
#pragma once
#include "cutlass/array.h"

namespace mixed_gemm {

// The part of the tile that a warp has after that: kMmaM x kMmaN mma tiles at (row, column).
// Without slices it is what the warp multiplied.
template <typename Config>
struct WarpPart {
  static constexpr bool kSliced = Config::kKWarps > 1;
  static constexpr int kMmaTiles = Config::kMmaM * Config::kMmaN;
  static constexpr int kParts = kMmaTiles < Config::kKWarps ? kMmaTiles : Config::kKWarps;
  static constexpr int kMmaM = kSliced ? 1 : Config::kMmaM;
  static constexpr int kMmaN = kMmaTiles / kParts / kMmaM;
  static constexpr int kAccumulators = kMmaM * kMmaN * 4;
  static_assert(!kSliced || (kMmaTiles % kParts == 0 && kParts % Config::kMmaM == 0),
                "warps have equal parts");
  static constexpr int kNowhere = 1 << 30;  // a column outside of every output

  static __device__ int row(int thread) {
    return kSliced ? Config::slice(thread) % Config::kMmaM * 16 : Config::warp_row(thread);
  }
  static __device__ int column(int thread) {
    if (!kSliced) return Config::warp_column(thread);
    const int slice = Config::slice(thread);
    return slice < kParts ? slice / Config::kMmaM * (8 * kMmaN) : kNowhere;
  }
};

// part = the sum over all slices. storage: kSliceBytes a slice, all free again when this returns.
template <typename Config, int kSliceBytes, typename Part, typename Accumulators>
__device__ void reduce_slices(uint8_t* storage, int thread, const Accumulators& accumulators,
                              Part& part) {
  static_assert(kSliceBytes >= Accumulators::kElements * 4 * 32, "sums fit where stages were");
  constexpr int kQuads = Accumulators::kElements / 4, kPartQuads = Part::kElements / 4;
  const int lane = thread % 32;
  int slice = Config::slice(thread);
  const auto* quads = reinterpret_cast<const float4*>(&accumulators);
  auto* mine = reinterpret_cast<float4*>(storage + slice * kSliceBytes) + lane;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kQuads; ++i) mine[i * 32] = quads[i];
  __syncthreads();
  part.clear();
  // mma tile (i, j) is at i + j * kMmaM. Slices without a part add the first one, and store
  // nothing.
  if (slice >= WarpPart<Config>::kParts) slice = 0;
  const int first = slice % Config::kMmaM + slice / Config::kMmaM * kPartQuads * Config::kMmaM;
  CUTLASS_PRAGMA_UNROLL
  for (int other = 0; other < Config::kKWarps; ++other) {
    const auto* theirs = reinterpret_cast<const float4*>(storage + other * kSliceBytes) + lane;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kPartQuads; ++j) {
      const float4 more = theirs[(first + j * Config::kMmaM) * 32];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 4; ++i) part[4 * j + i] += reinterpret_cast<const float*>(&more)[i];
    }
  }
  __syncthreads();
}

}  // namespace mixed_gemm
