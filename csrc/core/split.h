// How the blocks of a kernel share out K.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// kStreamK: `workers` blocks take equal shares of all k-tiles of all output tiles; where a tile
// changes hands, fp32 partial sums go through memory. kParallel: every tile is cut into `slices`,
// each stores fp32 partial sums, a second kernel reduces them in order and runs the epilogue.
// kCluster: cut alike, but the slices of a tile are a thread block cluster and meet in shared
// memory (sm_90).
enum class SplitK : int { kNone, kStreamK, kParallel, kCluster };
constexpr bool is_sliced(SplitK split) {
  return split == SplitK::kParallel || split == SplitK::kCluster;
}
constexpr int kMaxCluster = 8;  // blocks; what every sm_90 GPU takes

// Elements between rows of the partial sums that a parallel split leaves: whole 32 bytes.
constexpr int64_t partial_stride(int64_t n) { return round_up(n, 8); }

}  // namespace mixed_gemm
