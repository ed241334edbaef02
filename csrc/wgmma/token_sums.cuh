// Sums over k of the tokens of a tile, read from device memory. Not by mma: beside mma.sync ptxas
// ends the loops that multiply with two branches, and such builds were 1 to 5 % slower.
// wgmma/unfolded_zeros.cuh has sums of its own: a build whose tiles of 32 and 64 tokens mended with
// these, and by tensor cores, had the loops of 64 in another order, 1 to 3 % slower.
#pragma once
#include "wgmma/unfolded_zeros.cuh"

namespace mixed_gemm {

template <typename Config>
struct TokenSums {
  using Element = typename Config::Element;
  static constexpr int kOctets = Config::kTile.m / 8;

  // Sums row g of each octet from row0 on, over k-tiles [begin, end), two at most. Rows behind the
  // last one repeat it: nobody stores them. Called by all lanes of a warp.
  static __device__ void add_up(const UnfoldedZeros& p, int row0, int begin, int end,
                                float (&sums)[kOctets]) {
    constexpr int kSteps = 2 * kTileK / 32, kAtOnce = 2;  // four do that, too
    const int lane = static_cast<int>(threadIdx.x) % 32, k_end = min(end * kTileK, p.k);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kOctets; ++j) sums[j] = 0;
    CUTLASS_PRAGMA_NO_UNROLL
    for (int first = 0; first < kSteps; first += kAtOnce) {
      uint4 loaded[kAtOnce][kOctets];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = begin * kTileK + 32 * (first + i) + lane % 4 * 8;  // as K, a multiple of 8
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kOctets; ++j) {
          const int row = min(row0 + 8 * j + lane / 4, p.m - 1);
          const auto* of_row = static_cast<const Element*>(p.tokens) + row * p.token_stride;
          loaded[i][j] = make_uint4(0, 0, 0, 0);
          if (k < k_end) loaded[i][j] = *reinterpret_cast<const uint4*>(of_row + k);
        }
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kOctets; ++j) {
          const auto& of_lane = reinterpret_cast<const Element(&)[8]>(loaded[i][j]);
          for (int e = 0; e < 8; ++e) sums[j] += float(of_lane[e]);
        }
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kOctets; ++j) {
      sums[j] += __shfl_xor_sync(~0u, sums[j], 1);
      sums[j] += __shfl_xor_sync(~0u, sums[j], 2);
    }
  }
};

}  // namespace mixed_gemm
