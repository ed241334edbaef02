// Zero points that are no whole numbers where all are taken to be (16 tokens, wgmma/config.h): the
// rest that the constants of the conversion do not hold, times sums of tokens, is added behind the
// loop. The rest is of fractions, of zero points that are added, and of too large ones.
//
// Eight pieces of groups are the k of a product on tensor cores: each multiplying warp sums the
// tokens of one, and a lane loads the factors that it has in that product.
#pragma once
#include "cutlass/arch/mma_sm80.h"
#include "wgmma/token_sums.cuh"

namespace mixed_gemm {

// A float as two of tf32, which mma truncates to: three products of four, 21 bits of the product.
struct SplitFloat {
  uint32_t high, low;
  __device__ explicit SplitFloat(float x) : high(reinterpret_cast<uint32_t&>(x) & 0xffffe000u) {
    const float rest = x - reinterpret_cast<const float&>(high);
    low = reinterpret_cast<const uint32_t&>(rest);
  }
};

template <typename Config>
class FractionalZeros {
  using Element = typename Config::Element;
  using Converter = typename Config::Converter;
  using OfTokens = TokenSums<Config>;
  static constexpr int kOctets = OfTokens::kOctets, kRowTiles = Config::kRowTiles;
  static constexpr int kPieces = Config::kMultiplyThreads / 32;  // at once
  static_assert(kPieces == 8, "k of mma.m16n8k8");

 public:
  using Shared = float[kPieces][Config::kTile.m];

  __device__ FractionalZeros(const UnfoldedZeros& missed, const StagedScales& staged,
                             Shared& shared)
      : p_(missed), staged_(staged), shared_(shared) {}

  // Adds to a lane's sums of k-tiles [begin, end) of the tile at (row0, column0), laid out as
  // wgmma/output.cuh says. Called by all multiplying threads.
  __device__ void add(int row0, int column0, int begin, int end, float* sums) const {
    static_assert(Config::kTile.k_tiles == 2, "pieces of two k-tiles begin where stages do");
    end = min(end, static_cast<int>(ceil_div(p_.k, kTileK)));
    const int tiles = staged_.rows.tiles_per_group % 2 == 0 ? 2 : 1;  // of a piece
    CUTLASS_PRAGMA_NO_UNROLL
    for (int tile = begin; tile < end; tile += kPieces * tiles) {
      float tokens[2][kOctets];
      ColumnPairs pairs[kRowTiles][2];
      const int mine = tile + warp() * tiles;
      OfTokens::add_up(p_, row0, mine, min(end, mine + tiles), tokens[0]);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) {
        // Behind the end sums of tokens are 0.
        load_columns(column0, min(tile + (lane() % 4 + 4 * i) * tiles, end - 1), pairs, i);
      }
      share(tokens);
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        multiply(pairs[t], tokens, sums + t * Config::kSumsPerTile);
      }
    }
  }

 private:
  // The zero points and scales of columns g and g + 8, a half each.
  struct ColumnPairs {
    uint32_t zeros, scales;
  };

  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

  // sums: in, of this warp's piece; out, of pieces q and q + 4.
  __device__ void share(float (&sums)[2][kOctets]) const {
    Config::meet();  // all have read those of eight pieces before
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kOctets; ++j) {
      if (lane() % 4 == 0) shared_[warp()][8 * j + lane() / 4] = sums[0][j];
    }
    Config::meet();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kOctets; ++j) {
        sums[i][j] = shared_[lane() % 4 + 4 * i][8 * j + lane() / 4];
      }
    }
  }

  __device__ void load_columns(int column0, int tile, ColumnPairs (&pairs)[kRowTiles][2],
                               int i) const {
    const int64_t row = staged_.group(tile, 0) * p_.scale_stride;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      const int column = column0 + Config::column(warp(), t) + lane() / 4;
      const int64_t at = row + min(column, p_.n - 1), at_8 = row + min(column + 8, p_.n - 1);
      const auto* zeros = static_cast<const uint16_t*>(p_.zeros);
      const auto* scales = static_cast<const uint16_t*>(p_.scales);
      pairs[t][i] = {zeros[at] | uint32_t{zeros[at_8]} << 16,
                     scales[at] | uint32_t{scales[at_8]} << 16};
    }
  }

  // (t - zero point) * scale (wgmma/unfolded_zeros.cuh), or t * scale + zero point where these are
  // added.
  __device__ float factor(const ColumnPairs& pairs, uint32_t minus_rest, int half) const {
    const float zero = to_float(pairs.zeros >> 16 * half);
    const float scale = to_float(pairs.scales >> 16 * half);
    const float above = UnfoldedZeros::above_zero<Config>(minus_rest >> 16 * half);
    // Avoids 0 * infinity.
    if (staged_.folding.mask != 0) return above == 0 ? 0 : above * scale;
    const float t = above + zero;
    return t == 0 ? zero : fmaf(t, scale, zero);
  }
  static __device__ float to_float(uint32_t word) {
    const auto bits = static_cast<uint16_t>(word);
    return float(reinterpret_cast<const Element&>(bits));
  }

  // pairs, tokens: of pieces q and q + 4. sums: of a row tile.
  __device__ void multiply(const ColumnPairs (&pairs)[2], const float (&tokens)[2][kOctets],
                           float* sums) const {
    uint32_t high[4], low[4];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      uint32_t minus_rest;
      Converter::fold(pairs[i].zeros, Converter::kPairScaleX2, minus_rest);
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const SplitFloat split(factor(pairs[i], minus_rest, h));
        high[2 * i + h] = split.high;
        low[2 * i + h] = split.low;
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kOctets; ++j) {
      const SplitFloat first(bounded(tokens[0][j])), second(bounded(tokens[1][j]));
      const uint32_t high_tokens[2] = {first.high, second.high};
      multiply_add(low, high_tokens, sums + 4 * j);
      multiply_add(high, {first.low, second.low}, sums + 4 * j);
      multiply_add(high, high_tokens, sums + 4 * j);
    }
  }
  // Infinite tokens leave their mark in the products; here they would make NaN of a factor of 0.
  static __device__ float bounded(float tokens) {
    return fminf(fmaxf(tokens, -0x1p127f), 0x1p127f);
  }
  static __device__ void multiply_add(const uint32_t (&factors)[4], const uint32_t (&tokens)[2],
                                      float* sums) {
    using Float = cutlass::tfloat32_t;
    using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 8>, 32, Float,
                                   cutlass::layout::RowMajor, Float, cutlass::layout::ColumnMajor,
                                   float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
    auto& quad = reinterpret_cast<cutlass::Array<float, 4>&>(*sums);
    Mma()(quad, reinterpret_cast<const cutlass::Array<Float, 4>&>(factors),
          reinterpret_cast<const cutlass::Array<Float, 2>&>(tokens), quad);
  }

  const UnfoldedZeros& p_;
  const StagedScales& staged_;
  Shared& shared_;
};

}  // namespace mixed_gemm
