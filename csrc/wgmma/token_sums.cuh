// Sums over k of the tokens of a tile, by mma with ones: in a sum any order of k will do, so tokens
// are read as they are in device memory.
#pragma once
#include "core/half_arithmetic.h"
#include "cutlass/arch/mma_sm80.h"
#include "kernel/gemm_args.h"

namespace mixed_gemm {

struct TokensOfSums {
  const void* tokens;
  int64_t stride;
  int m, k;

  TokensOfSums() = default;
  explicit TokensOfSums(const GemmArgs& a) : tokens(a.a), stride(a.a_stride), m(a.m), k(a.k) {}
};

template <typename Config>
struct TokenSums {
  using Element = typename Config::Element;
  static constexpr int kOctets = Config::kTile.m / 8;

  // Of row g of each octet from row0 on, over k-tiles [begin, end), two at most. What lies behind
  // the last row repeats it: nobody stores that. All lanes of a warp.
  static __device__ void add_up(const TokensOfSums& p, int row0, int begin, int end,
                                float (&sums)[kOctets]) {
    using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                   cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                   float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
    constexpr int kSteps = 2 * kTileK / 32;
    constexpr int kAtOnce = kOctets > 4 ? 2 : kSteps;  // 64 tokens have no registers for more
    const uint32_t ones[2] = {Config::Format::kOneX2, Config::Format::kOneX2};
    const int lane = static_cast<int>(threadIdx.x) % 32, k_end = min(end * kTileK, p.k);
    // Rows of mma are half rows of tokens: g and g + 8 of the same one.
    cutlass::Array<float, 4> halves[kOctets] = {};
    CUTLASS_PRAGMA_NO_UNROLL
    for (int first = 0; first < kSteps; first += kAtOnce) {
      uint4 loaded[kAtOnce][kOctets];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = begin * kTileK + 32 * (first + i) + lane % 4 * 8;  // as K, a multiple of 8
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kOctets; ++j) {
          const int row = min(row0 + 8 * j + lane / 4, p.m - 1);
          const auto* of_row = static_cast<const Element*>(p.tokens) + row * p.stride;
          loaded[i][j] = make_uint4(0, 0, 0, 0);
          if (k < k_end) loaded[i][j] = *reinterpret_cast<const uint4*>(of_row + k);
        }
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kOctets; ++j) {
          Mma()(halves[j], reinterpret_cast<const cutlass::Array<Element, 8>&>(loaded[i][j]),
                reinterpret_cast<const cutlass::Array<Element, 4>&>(ones), halves[j]);
        }
      }
    }
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kOctets; ++j) sums[j] = halves[j][0] + halves[j][2];
  }
};

}  // namespace mixed_gemm
