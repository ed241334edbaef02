// A skinny GEMM straight on AutoAWQ tensors: as in skinny/, every weight byte goes from device
// memory into mma fragments, once. Weights are the 16-row operand of mma.m16n8k16, tokens the
// 8-column one.
//
// Lane (g = lane / 4, q = lane % 4) reads words of octets g * kWords .. of the rows
// 8 q .. 8 q + 7 of a step of 32 k. Which k an mma slot stands for is free as long as both operands
// agree: mma s of a step takes k = 8 q + 4 s + 0, 1 in its slots 2 q, 2 q + 1 and 8 q + 4 s + 2, 3
// in 2 q + 8, 2 q + 9, so the words of a lane's 16-byte activation vector are its fragments. Row g
// of mma t is column 2 t of the octet, row g + 8 column 2 t + 1 (awq/converter.h). The k of a lane
// lie in one group, since group sizes are multiples of 16.
//
// As soon as a step has read its registers they are requested anew: weights of the next unit of two
// steps, tokens of the next step. So the loop waits for no load that it has just made, not even by
// packing its result. (With tokens and scales requested where they were needed, and each weight
// scaled: 57344 x 8192 at M = 1 took 104 us in place of 76, 4096 x 4096 at M = 16 9.7 of 7.4.)
//
// Groups are coarse where they are multiples of a unit: zero points are unpacked once a unit, and
// up to 16 tokens meet the scales as fp32 sums of a unit. Else converted weights are scaled, and
// zero points and scales are a lane's own in each step where groups are fine.
//
// The warps of a block share out K and reduce in shared memory; so do the blocks of a cluster
// (sm_90), where the output is too narrow for the GPU: at 4096 x 4096 it has 64 blocks. (Blocks
// that make half of the columns of their words, without a cluster, took 6.8 us in place of 6.6.)
#pragma once
#include "awq/config.cuh"
#include "awq/load.cuh"
#include "awq/reduction.cuh"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "grid/pdl.cuh"
#include "mainloop/vector_word.cuh"

namespace mixed_gemm {

template <typename Element>
struct AwqParams {
  const Element* a;  // rows start on 16 bytes
  int a_stride;
  const uint32_t* qweight;
  const uint32_t* qzeros;
  const Element* scales;
  int m, n, k;                // k: a multiple of 8
  cutlass::FastDivmod group;  // how many units it has when coarse, how many times 8 k when fine
  Element* d;
};

template <typename Config>
class AwqGemm {
  using Element = typename Config::Element;
  using Format = typename Config::Format;
  using Converter = AwqConverter<Format>;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
  static constexpr int kMTiles = Config::kMTiles, kWords = Config::kWords;
  static constexpr int kSteps = Config::kSteps, kStepK = Config::kStepK, kUnitK = kAwqUnitK;
  static_assert(kSteps == 2, "tokens take turns in two fragments");
  static constexpr bool kWholeLines = Config::kWholeLines;

 public:
  using Params = AwqParams<Element>;

  __device__ AwqGemm(const Params& params, uint8_t* storage)
      : p_(params), reduction_(storage), row_words_(params.n / 8), row0_(blockIdx.y * Config::kM) {
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int k_warps = blockDim.x / (32 * Config::kNWarps);
    // Octets past the end repeat the last ones; nobody stores their results.
    const int tile = blockIdx.x * Config::kNWarps + warp % Config::kNWarps;
    octet_ = min((8 * tile + g) * kWords, row_words_ - kWords);
    unit_ = blockIdx.z * k_warps + warp / Config::kNWarps;
    stride_ = gridDim.z * k_warps;
    const int k = unit_ * kUnitK + 8 * q;
    k_left_ = p_.k - k;
    tokens_left_ = p_.m - row0_ - g;
    a_ = p_.a + (row0_ + g) * static_cast<int64_t>(p_.a_stride) + k;
    weights_ = p_.qweight + static_cast<int64_t>(k) * row_words() + octet_;
    // Made opaque, or the compiler reads the thread index anew in every iteration, which is slow.
    asm volatile("" : "+r"(k_left_), "+r"(tokens_left_), "+r"(octet_));
  }

  __device__ void run() {
    reduction_.start(p_.m - row0_);
    pdl_wait();
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kSteps; ++step) request_weights(step);
    request_zeros(0, k_left_);
    request_scales(0, k_left_);
    request_tokens(0, k_left_);
    pdl_launch_dependents();
    reduction_.wait_for_others();
#pragma unroll 1
    while (unit_ * kUnitK < p_.k) {
      if ((unit_ + 1) * kUnitK > p_.k) clear_tokens_past_end();
      multiply_unit();
    }
    reduction_.store(sums_.of, p_.m - row0_, p_.d + static_cast<int64_t>(row0_) * p_.n, p_.n);
  }

 private:
  struct Sums {
    AwqQuad of[4 * kWords][kMTiles];  // 2 columns each; one for each 8 tokens
    __device__ Sums() {
      CUTLASS_PRAGMA_UNROLL
      for (auto& columns : of) {
        CUTLASS_PRAGMA_UNROLL
        for (AwqQuad& tokens : columns) tokens.clear();
      }
    }
  };
  struct Tokens {
    uint4 of[kMTiles];
  };
  struct Pairs {
    typename Converter::Halves of[kWords][4];  // of rows 2 i and 2 i + 1
  };
  struct Group {  // columns 2 t and 2 t + 1 of an octet in a register
    uint32_t zeros[kWords][4], scales[kWords][4];
  };

  __device__ void multiply_unit() {
    const int k_left = k_left_;
    unit_ += stride_;
    k_left_ -= stride_ * kUnitK;
    weights_ += static_cast<int64_t>(row_words()) * (stride_ * kUnitK);
    Sums partial;
    Group group;
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const Pairs pairs = interleaved(step);
      request_weights(step);
      const int next = (step + 1) % kSteps, next_left = next == 0 ? k_left_ : k_left;
      if (Config::kFine || step == 0) {
        unpack_zeros(group);
        request_zeros(next, next_left);
        if constexpr (!Config::kScalesSums) {
          copy_scales(group);
          request_scales(next, next_left);
        }
      }
      if (next == 0) a_ += stride_ * kUnitK;
      request_tokens(next, next_left);
      multiply(Config::kScalesSums ? partial : sums_, pairs, group, tokens_[step % 2]);
    }
    if constexpr (Config::kScalesSums) {
      add_scaled(partial);
      request_scales(0, k_left_);
    }
  }

  // Requests 8 rows of kWords words of the unit at weights_. Past the end the registers keep finite
  // weights, which meet activations of 0.
  __device__ void request_weights(int step) {
    const bool inside = kStepK * step < k_left_;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < 8; ++row) {
      load_words_if<kWholeLines>(
          inside, raw_[step][row],
          weights_ + static_cast<int64_t>(row_words()) * (kStepK * step + row));
    }
  }

  // Requests zero points of the next unit, or of a step when fine, then scales: the former find out
  // where both are. k_left: of the unit.
  __device__ void request_zeros(int step, int k_left) {
    const int at = Config::kFine ? (p_.k - k_left + kStepK * step) / 8 : unit_;
    group_word_ = static_cast<unsigned>(p_.group.div(at)) * row_words() + octet_;
    load_words_if<kWholeLines>(has_group(step, k_left), zeros_, p_.qzeros + group_word_);
  }
  __device__ void request_scales(int step, int k_left) {
    const uint4* from = reinterpret_cast<const uint4*>(p_.scales) + group_word_;
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      load_vector_if(has_group(step, k_left), scales_[w], from + w);
    }
  }
  __device__ bool has_group(int step, int k_left) const {
    return Config::kFine ? kStepK * step < k_left : unit_ * kUnitK < p_.k;
  }

  // Requests the tokens of a step of the unit at a_. Those that do not exist stay 0.
  __device__ void request_tokens(int step, int k_left) {
    Tokens& tokens = tokens_[step % 2];
    const bool inside = kStepK * step < k_left;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMTiles; ++j) {
      const Element* row = a_ + static_cast<int64_t>(p_.a_stride) * (8 * j);
      load_vector_if(inside && 8 * j < tokens_left_, tokens.of[j], row + kStepK * step);
    }
  }

  // Called before a unit that has not all of its k; the tokens of its second step are still to be
  // requested. As part of every request this was 7 % of the loop's instructions.
  __device__ void clear_tokens_past_end() {
    CUTLASS_PRAGMA_UNROLL
    for (uint4& vector : tokens_[1].of) clear(vector);
    if (k_left_ > 0) return;
    CUTLASS_PRAGMA_UNROLL
    for (uint4& vector : tokens_[0].of) clear(vector);
  }

  __device__ Pairs interleaved(int step) const {
    Pairs pairs;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int w = 0; w < kWords; ++w) {
        pairs.of[w][i] = Converter::interleave(raw_[step][2 * i][w], raw_[step][2 * i + 1][w]);
      }
    }
    return pairs;
  }

  __device__ void unpack_zeros(Group& group) const {
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < 4; ++t) group.zeros[w][t] = Converter::zeros(zeros_[w], t);
    }
  }
  __device__ void copy_scales(Group& group) const {
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < 4; ++t) group.scales[w][t] = word_of(scales_[w], t);
    }
  }

  __device__ void multiply(Sums& sums, const Pairs& pairs, const Group& group,
                           const Tokens& tokens) const {
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < 2; ++s) {
        CUTLASS_PRAGMA_UNROLL
        for (int t = 0; t < 4; ++t) {
          uint32_t weights[4];
          CUTLASS_PRAGMA_UNROLL
          for (int r = 0; r < 4; ++r) {  // k 4 s + 0, 1, then 2, 3 of the even and the odd column
            const auto& pair = pairs.of[w][2 * s + r / 2];
            const bool odd = r % 2 == 1;
            weights[r] = Converter::difference(odd ? pair.high : pair.low, t,
                                               Converter::both(group.zeros[w][t], odd));
            if constexpr (!Config::kScalesSums) {
              weights[r] = mul_x2<Format>(weights[r], Converter::both(group.scales[w][t], odd));
            }
          }
          CUTLASS_PRAGMA_UNROLL
          for (int j = 0; j < kMTiles; ++j) {
            const uint32_t b[2] = {word_of(tokens.of[j], 2 * s), word_of(tokens.of[j], 2 * s + 1)};
            AwqQuad& sum = sums.of[4 * w + t][j];
            Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(weights),
                  reinterpret_cast<const cutlass::Array<Element, 4>&>(b), sum);
          }
        }
      }
    }
  }

  // sums += scale * partial
  __device__ void add_scaled(const Sums& partial) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4 * kWords; ++i) {
      const uint32_t pair = word_of(scales_[i / 4], i % 4);
      const auto scales = reinterpret_cast<const cutlass::Array<Element, 2>&>(pair);
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 4; ++e) {  // elements 0, 1: the even column; 2, 3: the odd one
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kMTiles; ++j) {
          float& sum = sums_.of[i][j][e];
          sum = fmaf(float(scales[e / 2]), partial.of[i][j][e], sum);
        }
      }
    }
  }

  // Written in PTX, or the branch becomes a select for each register.
  static __device__ void clear(uint4& v) {
    asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w));
  }
  // The words of a row of the weight; computed anew where it would be spilled.
  __device__ int row_words() const {
    return Config::kRegistersShort ? static_cast<int>(static_cast<unsigned>(p_.n) / 8) : row_words_;
  }

  const Params& p_;
  AwqReduction<Config> reduction_;
  int row_words_, row0_;
  int octet_;                // the lane's first
  int unit_, stride_;        // the next one to request weights of; between units of a warp
  unsigned group_word_;      // of zero points, and 16 bytes of scales, that are requested
  int k_left_;               // of it, from the lane's first k on
  int tokens_left_;          // from the lane's first on
  const Element* a_;         // the lane's first k of the unit that multiplies
  const uint32_t* weights_;  // of the next one
  uint32_t raw_[kSteps][8][kWords] = {};
  // Kept as loaded: any arithmetic next to the loads would wait for the memory.
  uint32_t zeros_[kWords] = {};
  uint4 scales_[kWords] = {};
  Tokens tokens_[2] = {};
  Sums sums_;
};

template <typename Config>
__global__ void __launch_bounds__(Config::kMaxThreads, 1)
    awq_gemm_kernel(const __grid_constant__ AwqParams<typename Config::Element> params) {
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  AwqGemm<Config>(params, shared_bytes).run();
}

}  // namespace mixed_gemm
