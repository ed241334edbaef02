// What the constants of the conversion do not hold of zero points, where a loop takes them to be
// whole (wgmma/whole_zeros.cuh): sums of a group's tokens times a factor of the column, added
// behind the loop. Fractions, zero points that are added, and those that are too large.
//
// Eight groups at once: each multiplying warp sums the tokens of one (mma with ones, read as they
// are in device memory: in a sum any order of k will do), and the lanes of a quad share out the
// factors of their columns, so that all loads of eight groups are under way together.
#pragma once
#include "cutlass/arch/mma_sm80.h"
#include "kernel/gemm_args.h"
#include "wgmma/staged_scales.cuh"

namespace mixed_gemm {

struct MissedZeros {
  const void *tokens, *scales, *zeros;
  int64_t token_stride, scale_stride;
  int m, n, k;

  MissedZeros() = default;
  explicit MissedZeros(const GemmArgs& a)
      : tokens(a.a),
        scales(a.scales),
        zeros(a.zeros),
        token_stride(a.a_stride),
        scale_stride(a.scale_stride),
        m(a.m),
        n(a.n),
        k(a.k) {}
};

template <typename Config>
class MissedSums {
  using Element = typename Config::Element;
  static constexpr int kTokens = Config::kTile.m, kSixteens = kTokens / 16;
  static constexpr int kGroups = Config::kMultiplyThreads / 32;  // at once
  static constexpr int kColumns = 2 * Config::kRowTiles;         // of a lane
  static constexpr int kGroupsOfLane = kGroups / 4;

 public:
  using Shared = float[kGroups][kTokens];

  __device__ MissedSums(const MissedZeros& missed, const StagedScales& staged, Shared& shared)
      : p_(missed), staged_(staged), shared_(shared) {}

  // To a lane's sums of k-tiles [begin, end) of the tile at (row0, column0), laid out as
  // wgmma/wgmma_output.cuh says. All multiplying threads.
  __device__ void add(int row0, int column0, int begin, int end, float* sums) const {
    end = min(end, static_cast<int>(ceil_div(p_.k, kTileK)));
    const int last = staged_.group(end - 1, 0);
    CUTLASS_PRAGMA_NO_UNROLL
    for (int group = staged_.group(begin, 0); group <= last; group += kGroups) {
      float tokens[kSixteens][4] = {}, factors[kGroupsOfLane][kColumns];
      const int tiles = staged_.rows.tiles_per_group, mine = group + warp();
      sum_tokens(row0, max(begin, mine * tiles), min(end, (mine + 1) * tiles), tokens);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kGroupsOfLane; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          const int column = column0 + Config::column(warp(), c / 2) + lane() / 4 + c % 2 * 8;
          factors[i][c] = factor(group + lane() % 4 * kGroupsOfLane + i, last, column);
        }
      }
      Config::meet();  // all have read the sums of eight groups before
      share(tokens);
      Config::meet();
      CUTLASS_PRAGMA_NO_UNROLL
      for (int q = 0; q < 4; ++q) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kGroupsOfLane; ++i) {
          add_group(shared_[q * kGroupsOfLane + i], factors[i], q, sums);
        }
      }
    }
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / 32; }

  // Of k-tiles [begin, end), as mma leaves them: rows g and g + 8 in 0 and 2.
  __device__ void sum_tokens(int row0, int begin, int end, float (&sums)[kSixteens][4]) const {
    using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                   cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                   float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
    using Quad = cutlass::Array<float, 4>;
    const uint32_t ones[2] = {Config::Format::kOneX2, Config::Format::kOneX2};
    const auto& ones_of_mma = reinterpret_cast<const cutlass::Array<Element, 4>&>(ones);
#pragma unroll(kSixteens > 2 ? 1 : 2)  // 64 tokens would spill
    for (int k0 = begin * kTileK; k0 < end * kTileK; k0 += 32) {
      const int k = k0 + lane() % 4 * 8;  // a multiple of 8, as all of K
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < kSixteens; ++s) {
        const int row = row0 + 16 * s + lane() / 4;
        const uint4 low = load(row, k), high = load(row + 8, k);
        const uint32_t first[4] = {low.x, high.x, low.y, high.y};
        const uint32_t second[4] = {low.z, high.z, low.w, high.w};
        Quad& sum = reinterpret_cast<Quad&>(sums[s]);
        Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(first), ones_of_mma, sum);
        Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(second), ones_of_mma, sum);
      }
    }
  }
  __device__ uint4 load(int row, int k) const {
    if (row >= p_.m || k >= p_.k) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(static_cast<const Element*>(p_.tokens) +
                                           row * p_.token_stride + k);
  }
  __device__ void share(const float (&sums)[kSixteens][4]) const {
    if (lane() % 4 != 0) return;
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kSixteens; ++s) {
      shared_[warp()][16 * s + lane() / 4] = sums[s][0];
      shared_[warp()][16 * s + lane() / 4 + 8] = sums[s][2];
    }
  }

  // (t - zero point) * scale, where t is what the offsets hold (dequant/folding_converter.h), or
  // t * scale + zero point where these are added.
  __device__ float factor(int group, int last, int column) const {
    using Converter = FoldingConverter<typename Config::Format, Config::kBits>;
    if (group > last || column >= p_.n) return 0;
    const int64_t at = group * p_.scale_stride + column;
    const uint16_t zero = static_cast<const uint16_t*>(p_.zeros)[at];
    const float scale = float(static_cast<const Element*>(p_.scales)[at]);
    uint32_t minus_rest;
    Converter::fold(zero, Converter::kUnitX2, minus_rest);
    const float above = to_float(static_cast<uint16_t>(minus_rest)) * Converter::kUnit;  // t - zero
    // Not 0 * infinity.
    if (staged_.folding.mask != 0) return above == 0 ? 0 : above * scale;
    const float t = above + to_float(zero);
    return t == 0 ? to_float(zero) : fmaf(t, scale, to_float(zero));
  }
  static __device__ float to_float(uint16_t bits) {
    return float(reinterpret_cast<const Element&>(bits));
  }

  // factors: of lane q of the quad.
  __device__ void add_group(const float (&tokens)[kTokens], const float (&factors)[kColumns], int q,
                            float* sums) const {
    CUTLASS_PRAGMA_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const float factor = __shfl_sync(~0u, factors[c], q, 4);
      if (factor == 0) continue;  // not 0 * infinity
      float* of_column = sums + c / 2 * Config::kSumsPerTile + c % 2 * 2;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kTokens / 8; ++j) {
        const float2 two = reinterpret_cast<const float2&>(tokens[8 * j + lane() % 4 * 2]);
        of_column[4 * j] = fmaf(factor, two.x, of_column[4 * j]);
        of_column[4 * j + 1] = fmaf(factor, two.y, of_column[4 * j + 1]);
      }
    }
  }

  const MissedZeros& p_;
  const StagedScales& staged_;
  Shared& shared_;
};

}  // namespace mixed_gemm
