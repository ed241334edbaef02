// The rest of zero points that are no whole numbers, which the constants of the conversion do not
// hold: it is added times the sums of a group's tokens. This is for groups behind one whose zero
// points are all whole (wgmma/integer_zeros.cuh), which no checkpoint is known to have: plain
// loads, no tensor cores, slow.
#pragma once
#include "problem/gemm.h"
#include "wgmma/staged_scales.cuh"

namespace mixed_gemm {

struct UnfoldedZeros {
  const void *tokens, *scales, *zeros;
  int64_t token_stride, scale_stride;
  int m, n, k;

  UnfoldedZeros() = default;
  UnfoldedZeros(const GemmProblem& p, const KernelExtents& e)
      : tokens(p.a),
        scales(p.scales),
        zeros(p.zeros),
        token_stride(e.a_stride),
        scale_stride(p.scale_stride),
        m(e.m),
        n(e.n),
        k(e.k) {}

  // The same of scales and zero points that begin so many rows later.
  __device__ UnfoldedZeros of_rows_from(int row) const {
    UnfoldedZeros later = *this;
    const int64_t elements = row * scale_stride;
    later.scales = static_cast<const uint16_t*>(scales) + elements;
    later.zeros = static_cast<const uint16_t*>(zeros) + elements;
    return later;
  }

  // t - zero point, where t is what the offsets hold (dequant/folding_converter.h), from the low
  // half of what fold() leaves.
  template <typename Config>
  static __device__ float above_zero(uint32_t minus_rest) {
    using Converter = typename Config::Converter;
    const auto bits = static_cast<uint16_t>(minus_rest);
    return float(reinterpret_cast<const typename Config::Element&>(bits)) * Converter::kResultScale;
  }

  // Adds to a lane's sums of k-tiles [begin, end) of the tile at (row0, column0), laid out as
  // wgmma/output.cuh says. Called by all lanes of a warp.
  template <typename Config>
  __device__ void add(const StagedScales& staged, int row0, int column0, int begin, int end,
                      float* sums) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4;
    end = min(end, static_cast<int>(ceil_div(k, kTileK)));
    CUTLASS_PRAGMA_NO_UNROLL
    for (int tile = begin; tile < end; ++tile) {
      constexpr int kOctets = Config::kTile.m / 8;
      float tokens_of_lane[kOctets][2];
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kOctets; ++j) {
        octet_sums<typename Config::Element>(row0 + 8 * j, tile, tokens_of_lane[j]);
      }
      const int group = staged.group(tile, 0);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * Config::kRowTiles; ++i) {
        const int t = i / 2, half = i % 2;
        const float rest =
            scaled_rest<Config>(group, column0 + Config::column(warp, t) + g + 8 * half);
        if (rest == 0) continue;  // not 0 * infinity
        float* of_column = sums + t * Config::kSumsPerTile + 2 * half;
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kOctets; ++j) {
          of_column[4 * j] = fmaf(rest, tokens_of_lane[j][0], of_column[4 * j]);
          of_column[4 * j + 1] = fmaf(rest, tokens_of_lane[j][1], of_column[4 * j + 1]);
        }
      }
    }
  }

 private:
  // The sums of tokens 2 q and 2 q + 1 of an octet over a k-tile; a quad computes one token's.
  template <typename Element>
  __device__ void octet_sums(int row0, int tile, float (&sums)[2]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, row = row0 + lane / 4;
    float sum = 0;
    for (int i = 0; i < kTileK / 32; ++i) {
      const int at = tile * kTileK + 32 * i + lane % 4 * 8;
      if (row >= m || at >= k) continue;
      alignas(16) Element values[8];
      const auto* of_row = static_cast<const Element*>(tokens) + row * token_stride;
      *reinterpret_cast<uint4*>(values) = *reinterpret_cast<const uint4*>(of_row + at);
      for (int e = 0; e < 8; ++e) sum += float(values[e]);
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    for (int e = 0; e < 2; ++e) sums[e] = __shfl_sync(~0u, sum, (lane % 4 * 2 + e) * 4);
  }

  // The factor of a sum of tokens, above_zero() * scale.
  template <typename Config>
  __device__ float scaled_rest(int group, int column) const {
    using Element = typename Config::Element;
    using Converter = typename Config::Converter;
    if (column >= n) return 0;
    const int64_t at = group * scale_stride + column;
    uint32_t minus_rest;
    Converter::fold(static_cast<const uint16_t*>(zeros)[at], Converter::kPairScaleX2, minus_rest);
    return above_zero<Config>(minus_rest) * float(static_cast<const Element*>(scales)[at]);
  }
};

}  // namespace mixed_gemm
