// The products of a skinny warp: a tile of 16 columns of weights by 8 tokens is one mma.m16n8k16
// for 16 k, with fp32 sums.
#pragma once
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "layout/weight_layout.h"
#include "mainloop/vector_word.cuh"
#include "skinny/config.cuh"

namespace mixed_gemm {

template <typename Config>
struct SkinnyProducts {
  using Element = typename Config::Element;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
  using Quad = cutlass::Array<float, 4>;  // elements 0, 1: column g; 2, 3: column g + 8
  using Fragment = uint4[Config::kMTiles][Config::kVectors];  // of tokens
  // The mma steps of a word, which are the halves of 16 k in a block.
  static constexpr int kStepsPerBlock = kStepsPerWord<typename Config::Weight>;

  // The sums of a tile's products, one array for each 8 tokens.
  struct Sums {
    Quad of[Config::kMTiles];
    __device__ Sums() {
      CUTLASS_PRAGMA_UNROLL
      for (Quad& tokens : of) tokens.clear();
    }
  };

  // A step of words 2 w and 2 w + 1 of columns g and g + 8, as operands of mma: one for each pair
  // of k of a word.
  struct Pairs {
    uint32_t operand[2][4];
  };

  // Multiplies step s of these words: step = kStepsPerBlock * w + s. sums: for pairs 0 and 1.
  static __device__ void multiply(Sums* const (&sums)[2], const Pairs& pairs,
                                  const Fragment& tokens, int step) {
    const int w = step / kStepsPerBlock, s = step % kStepsPerBlock;
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMTiles; ++i) {
        const uint4& token = tokens[i][2 * s + pair];
        const uint32_t b[2] = {word_of(token, 2 * w), word_of(token, 2 * w + 1)};
        Quad& sum = sums[pair]->of[i];
        Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(pairs.operand[pair]),
              reinterpret_cast<const cutlass::Array<Element, 4>&>(b), sum);
      }
    }
  }

  // Multiplies with kWeight, two 16-bit floats, for all weights of the step: the sums of the tokens
  // 8 i + 2 q and the next one, the same for all columns.
  template <uint32_t kWeight>
  static __device__ void sum_tokens(Sums& sums, const Fragment& tokens, int step) {
    constexpr Pairs kWeights = {
        {{kWeight, kWeight, kWeight, kWeight}, {kWeight, kWeight, kWeight, kWeight}}};
    Sums* const both[2] = {&sums, &sums};
    multiply(both, kWeights, tokens, step);
  }

  // Sums the tokens 8 i + 2 q and the next one over each part of the iteration. As the operand of
  // 16 rows a vector of a lane is two rows of its token: half as many products as above, and no
  // registers but its own. Its second half is k 8 to 15 of these.
  static __device__ void sum_tokens(float (&sums)[Config::kParts][Config::kMTiles][2],
                                    const Fragment& tokens) {
    const int lane = static_cast<int>(threadIdx.x % 32), q = lane % 4;
    // Columns 0 to 3 get the sums of the first part, 4 to 7 of the second.
    const bool whole = Config::kParts == 1, first = lane < 16;
    const uint32_t ones[2] = {whole || first ? Config::Format::kOneX2 : 0u,
                              whole || !first ? Config::Format::kOneX2 : 0u};
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kMTiles; ++i) {
      Quad sum;
      sum.clear();
      CUTLASS_PRAGMA_UNROLL
      for (const uint4& vector : tokens[i]) {
        Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(vector),
              reinterpret_cast<const cutlass::Array<Element, 4>&>(ones), sum);
      }
      const float own = sum[0] + sum[2];  // of token g
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < Config::kParts; ++part) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          sums[part][i][e] = __shfl_sync(0xffffffff, own, 8 * q + 4 * e + 2 * part);
        }
      }
    }
  }

  // Reduces quarters: each lane of a quad has the sums of its own groups; lane q gets the total of
  // element q.
  static __device__ float add_lanes(const Quad& sums) {
    const bool odd = threadIdx.x % 2 != 0, high = threadIdx.x % 4 >= 2;
    float two[2];
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float others = __shfl_xor_sync(0xffffffff, high ? sums[e] : sums[2 + e], 2);
      two[e] = (high ? sums[2 + e] : sums[e]) + others;
    }
    const float others = __shfl_xor_sync(0xffffffff, odd ? two[0] : two[1], 1);
    return (odd ? two[1] : two[0]) + others;
  }

  // sums += factor * more
  static __device__ void add(Sums& sums, const Sums& more, float factor) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 4; ++e) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMTiles; ++i) {
        sums.of[i][e] = fmaf(more.of[i][e], factor, sums.of[i][e]);
      }
    }
  }
};

}  // namespace mixed_gemm
