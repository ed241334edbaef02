// The skinny family, for M up to about 16: every weight byte goes from device memory straight into
// mma fragments, without shared memory. Weights are the 16-row operand of mma.m16n8k16, tokens the
// 8-column one.
//
// Lane (g = lane / 4, q = lane % 4) loads the 16-byte block 4 i + q of columns g and g + 8 in
// iteration i; where a group is half an iteration, 8 bytes of block 4 i + q / 2 and 8 of block
// 4 i + 2 + q / 2, so that no mma mixes groups. Which k an mma slot stands for is free as long as
// both operands agree: pair v of words 2 w and 2 w + 1 of a lane's block feed mma (v, w), and
// 32-bit words 2 w and 2 w + 1 of its activation vector v hold just the same k. So the tokens need
// no permutation, and the two words are neighbours, as mma wants them (words of two vectors had to
// be moved: 16 instructions a tile).
//
// The loop's instructions and waits count (57344 x 8192, M = 1, us: 71 with addresses computed
// anew, registers zeroed before predicated loads, and moves; 63 without). A value that was spilled
// or packed right after its load waits for memory there: with 8 bytes of spills, 72.
//
// Scales of groups that are multiples of half an iteration multiply fp32 partial sums, which zero
// points leave with the sums of the tokens, and where that pays so does the bias of the layout
// (Config::kStored).
//
// Where groups are a quarter of an iteration, each lane of a quad has its own, and an mma sums over
// the quad. So up to 2 tokens are spread over the 8 columns of their operand, 2 for each lane, with
// zeros where the k are another lane's: a lane then has the sums of its own group, and the quad
// reduces them at the end (57344 x 8192, groups of 32, M = 1: 71 us in place of 81). With more
// tokens, smaller groups, and zeros that are added, converted weights are scaled. The warps of a
// block and the blocks of a cluster share out K and reduce once, at the end.
#pragma once
#include <type_traits>

#include "grid/pdl.cuh"
#include "layout/weight_layout.h"
#include "mainloop/predicated_load.cuh"
#include "skinny/config.cuh"
#include "skinny/direct_tokens.cuh"
#include "skinny/products.cuh"
#include "skinny/reduction.cuh"
#include "skinny/scale_stage.cuh"
#include "skinny/scales.cuh"
#include "skinny/token_stage.cuh"

namespace mixed_gemm {

template <typename Config>
class SkinnyGemm {
  using Element = typename Config::Element;
  using Format = typename Config::Format;
  using Layout = WeightLayout<typename Config::Weight>;
  using Products = SkinnyProducts<Config>;
  using Sums = typename Products::Sums;
  using Pairs = typename Products::Pairs;
  using Tokens = std::conditional_t<Config::kStaged, TokenStage<Config>, DirectTokens<Config>>;
  using Fragment = typename Tokens::Fragment;
  using Scales =
      std::conditional_t<Config::kStagesScales, ScaleStage<Config>, SkinnyScales<Config>>;
  static constexpr int kMTiles = Config::kMTiles, kNTiles = Config::kNTiles;
  static constexpr int kLinesPerIteration = Config::kIterationK / kTileK;
  static constexpr int kStepsPerBlock = Products::kStepsPerBlock;
  static constexpr int kSteps = 2 * kStepsPerBlock;  // of a tile and iteration
  static constexpr int kPartSteps = kSteps / Config::kParts;
  static constexpr bool kSumsTokens = Config::kSumsTokens;
  static constexpr bool kSubtracts = Config::kScalesSums && Config::kZeros && !kSumsTokens;
  static constexpr int kWarps = Config::kRow.warps;
  using Converter = typename Config::Converter;
  static constexpr float kPairScale = Converter::kPairScale;
  // The bias is summed without zero points: beside the first tile, since an mma right behind
  // another one of the same sums waits (1 to 2 %), and the other tiles begin with these sums.
  static constexpr bool kSumsBias = Config::kStored && !kSumsTokens;
  // Staged scales are awaited behind the first tile's products: 2 % of 16 tokens by 64 columns;
  // others are 1 to 3 % slower.
  static constexpr bool kTakesLate = Config::kStagesScales && Config::kTiles == 8;
  using Reduction = SkinnyReduction<Config>;

 public:
  struct Params : CodeValues<typename Config::Weight> {
    const Element* a;
    int64_t a_stride;
    const uint8_t* b;
    SkinnyScaleParams<Element> scales;
    int octet_stride;  // bytes of the packed weight between columns n and n + 8
    int m, n, k, k_tiles;
    int share;  // iterations of a block
    ZeroMode zero_mode;
    OutputParams<Element, typename Config::Factor> output;
  };
  // The stages of a warp, later its sums.
  struct Stages {
    typename Tokens::Storage tokens;
    typename Scales::Storage scales;
  };
  union WarpStorage {
    Stages stages;
    alignas(16) typename Reduction::WarpSums sums;
  };
  struct SharedStorage {
    typename Reduction::Storage reduction;
    WarpStorage warps[kWarps];
    std::conditional_t<Config::kHasTable, typename Config::Pairs::Storage, char> table;
  };
  // Bytes of dynamic shared memory; 0 where it is static.
  static constexpr int kDynamicBytes = sizeof(SharedStorage) > 48 * 1024
                                           ? static_cast<int>(sizeof(SharedStorage))
                                           : 0;
  static_assert(sizeof(SharedStorage) <= 99 * 1024, "a block's at compute capability 8.6");

  __device__ SkinnyGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        storage_(storage),
        reduction_(storage.reduction),
        warp_(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        column0_(blockIdx.x * Config::kN),
        row0_(Config::kGrouped ? 0 : blockIdx.y * Config::kM),
        first_((Config::kSplits ? blockIdx.z * p_.share : 0) + warp_),
        tokens_(storage.warps[warp_].stages.tokens, p_.a + row0_ * p_.a_stride, p_.a_stride,
                p_.m - row0_, p_.k, first_),
        scales_(p_.scales, storage.warps[warp_].stages.scales, column0_) {
    const int n = column0_ + g_, first = Config::kHalf ? q_ / 2 : q_;
    const int tile = first / Layout::kBlocksPerTile, block = first % Layout::kBlocksPerTile;
    const int line = first_ * kLinesPerIteration + tile;
    weights_ = p_.b +
               (static_cast<int64_t>(n / Layout::kInterleave) * p_.k_tiles + line) * kLineBytes +
               (n % Layout::kInterleave * Layout::kBlocksPerTile + block) * 16;
    if (Config::kHalf) weights_ += q_ % 2 * 8;
    const int last_tile = Config::kHalf ? kLinesPerIteration - 1 : tile;
    iterations_ = (p_.k_tiles - last_tile + kLinesPerIteration - 1) / kLinesPerIteration;
    // Made opaque, or the compiler reads the thread index anew in every iteration, which is slow.
    asm volatile("" : "+r"(iterations_));
  }

  __device__ void run() {
    int end = (p_.k_tiles + kLinesPerIteration - 1) / kLinesPerIteration;
    if (Config::kSplits) end = min(end, (static_cast<int>(blockIdx.z) + 1) * p_.share);
    // Called in front of everything: up to 9 % for clusters of blocks of 64 columns.
    reduction_.start(p_.m - row0_);
    if (Config::kEarlyAddresses) {
      make_before_wait(&storage_, weights_, tokens_.source(), scales_.source(first_));
    }
    pdl_wait();
    if (Config::kStagesScales) scales_.start(first_, end);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      raw_[j][0] = raw_[j][1] = uint4{};
      load_weights<true>(first_, j);
    }
    Fragment tokens = {};
    if (first_ < end) tokens_.request();
    if (!Config::kStagesScales) scales_.start(first_, end);
    pdl_launch_dependents();
    const Converter converter = make_converter();
    for (int at = first_; at < end; at += kWarps) {
      const int next = at + kWarps;
      tokens_.take(tokens, at);
      if (next < end) tokens_.request();
      weights_ += kWarps * kLinesPerIteration * kLineBytes;
      if (!kTakesLate) scales_.take(at, end);
      if constexpr (kSumsTokens) Products::sum_tokens(sums_of_tokens_, tokens);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) {
        const auto take = [&] {
          if (kTakesLate && j == 0) scales_.take(at, end);
        };
        multiply_tile(converter, j, tokens, next, next < end, take);
      }
      scales_.advance();
    }
    reduce_and_store();
  }

 private:
  // The first weights are on their way meanwhile.
  __device__ Converter make_converter() {
    if constexpr (Config::kHasTable) {
      Converter::fill(storage_.table, p_, threadIdx.x, Config::kThreads);
      __syncthreads();
      return Converter(storage_.table);
    } else {
      return Converter();
    }
  }

  // A tile's weights meet the tokens, and its next ones are requested as soon as its registers are
  // free, while the other tiles are multiplied. The branch keeps ptxas from moving the requests up,
  // where they would need more registers than the cap leaves.
  template <typename Take>
  __device__ void multiply_tile(const Converter& converter, int j, const Fragment& tokens, int next,
                                bool more, const Take& take) {
    if constexpr (Config::kScalesWeights) scales_.hold(j);
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < Config::kParts; ++part) {
      uint32_t zeros[2] = {};  // of columns g and g + 8, to be subtracted
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        if constexpr (kSubtracts) {
          zeros[h] = prmt<0x1010>(scales_.zero_bits(j, part, h), 0u);
          if constexpr (kPairScale != 1.f)
            zeros[h] = mul_x2<Format>(zeros[h], Converter::kPairScaleX2);
        }
      }
      multiply_part(converter, j, part, tokens, zeros, next, more, take);
    }
  }

  // take: called before scales are read.
  template <typename Take>
  __device__ void multiply_part(const Converter& converter, int j, int part, const Fragment& tokens,
                                const uint32_t (&zeros)[2], int next, bool more, const Take& take) {
    Sums partial, low;  // low: of pairs 0, where these have a scale of their own
    if (kSumsBias && Config::kScalesSums && j > 0) partial = token_sums_;
    Sums& high = Config::kScalesSums ? partial : accumulators_[j];
    Sums* const sums[2] = {Converter::kRatio == 1 ? &high : &low, &high};
    const int last = (part + 1) * kPartSteps - 1;
    CUTLASS_PRAGMA_UNROLL
    for (int step = part * kPartSteps; step < last; ++step) {
      Products::multiply(sums, converted(converter, j, step, zeros), tokens, step);
      if (kSumsBias && j == 0) sum_tokens(tokens, step);
    }
    const Pairs pairs = converted(converter, j, last, zeros);
    take();
    float scales[2], offsets[2] = {};
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      scales[h] = scales_.scale(j, part, h);
      if constexpr (kSumsTokens) {
        const float zero = Config::kZeros ? scales_.zero(j, part, h) : 0.f;
        offsets[h] = (zero + Converter::kBias) * -kPairScale;
      }
    }
    const bool free = part + 1 == Config::kParts, early = free && Config::kRequestsEarly;
    if (kSumsBias && j == 0) sum_tokens(tokens, last);
    if (!early) Products::multiply(sums, pairs, tokens, last);
    if (free && more) {
      load_weights<false>(next, j);
      scales_.load(next, j);
    }
    if (early) Products::multiply(sums, pairs, tokens, last);
    if constexpr (Converter::kRatio != 1) Products::add(high, low, Converter::kRatio);
    if (kSumsBias && Config::kScalesSums && j == 0) Products::add(high, token_sums_, 1);
    if constexpr (Config::kScalesSums) add_scaled(j, part, scales, offsets, partial);
  }

  // Blocks past the end (half an iteration, or all of it) keep the weights that were there, which
  // are finite, and meet activations that are 0.
  template <bool kFirst>
  __device__ void load_weights(int iteration, int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const uint8_t* at = weights_ + static_cast<int64_t>(p_.octet_stride) * (2 * j + h);
      uint4& raw = raw_[j][h];
      if constexpr (Config::kHalf) {
        constexpr int kOtherHalf = Layout::kBlocksPerTile == 2 ? kLineBytes : 32;
        load_once_if<kFirst>(iteration * kLinesPerIteration < p_.k_tiles, raw.x, raw.y, at);
        load_once_if<kFirst>(iteration < iterations_, raw.z, raw.w, at + kOtherHalf);
      } else {
        load_once_if<kFirst>(iteration < iterations_, raw, at);
      }
    }
  }

  // Converts step s of words 2 w and 2 w + 1: step = kStepsPerBlock * w + s.
  __device__ Pairs converted(const Converter& converter, int j, int step,
                             const uint32_t (&zeros)[2]) const {
    const int w = step / kStepsPerBlock, s = step % kStepsPerBlock;
    Pairs pairs;
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < 2; ++r) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint32_t two[2];
        const uint32_t packed = word_of(raw_[j][h], 2 * w + r);
        converter.convert_step(packed, s, two);
        if constexpr (kSubtracts) {
          two[0] = sub_x2<Format>(two[0], zeros[h]);
          two[1] = sub_x2<Format>(two[1], zeros[h]);
        }
        if constexpr (Config::kScalesWeights) {
          scales_.packed(j, h, s).template apply<Format, Config::kZeros>(p_.zero_mode, two);
        }
        pairs.operand[0][2 * r + h] = two[0];
        pairs.operand[1][2 * r + h] = two[1];
      }
    }
    return pairs;
  }

  // Adds a step's tokens to their sums, over an iteration, or over all of them where scales wait
  // for the end.
  __device__ void sum_tokens(const Fragment& tokens, int step) {
    constexpr uint32_t kWeight = [] {
      if constexpr (kSumsBias && Config::kScalesSums) return Converter::kMinusBiasX2;
      return Format::kOneX2;
    }();
    if (Config::kScalesSums && step == 0) token_sums_ = Sums();
    Products::template sum_tokens<kWeight>(token_sums_, tokens, step);
  }

  // accumulators += scale * (partial + offset * sum of the token)
  __device__ void add_scaled(int j, int part, const float (&scales)[2], const float (&offsets)[2],
                             const Sums& partial) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 4; ++e) {  // elements 0, 1: column g; 2, 3: column g + 8
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        float product = partial.of[i][e];
        if constexpr (kSumsTokens) {
          product = fmaf(offsets[e / 2], sums_of_tokens_[part][i][e % 2], product);
        }
        float& sum = accumulators_[j].of[i][e];
        sum = fmaf(scales[e / 2], product, sum);
      }
    }
  }

  __device__ void reduce_and_store() {
    if (Config::kStagesScales)
      __syncwarp();  // other lanes have read what the sums take the place of
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        const auto& quad = accumulators_[j].of[i];
        auto& sums = storage_.warps[warp_].sums;
        if constexpr (Config::kQuarter) {
          sums[kQuarterTokens * i + q_ % 2][16 * j + 8 * (q_ / 2) + g_] = Products::add_lanes(quad);
        } else {
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < 4; ++e) {
            float sum = quad[e];
            if constexpr (kSumsBias && !Config::kScalesSums) {
              sum = fmaf(token_sums_.of[i][e], -Converter::kBias * kPairScale, sum);
            }
            sums[8 * i + 2 * q_ + e % 2][16 * j + 8 * (e / 2) + g_] = sum;
          }
        }
      }
    }
    reduction_.store(storage_.warps, 1 / kPairScale, p_.m - row0_, row0_, column0_, p_.output);
  }

  const Params& p_;
  SharedStorage& storage_;
  Reduction reduction_;
  int warp_, g_, q_, column0_, row0_;
  int first_;  // of this warp's iterations
  Tokens tokens_;
  Scales scales_;
  const uint8_t* weights_;  // this lane's in the next iteration, of column g
  int iterations_;          // that have all of this lane's blocks
  uint4 raw_[kNTiles][2];   // of columns g and g + 8
  Sums accumulators_[kNTiles];
  Sums token_sums_;                                   // of the bias, as an mma's
  float sums_of_tokens_[Config::kParts][kMTiles][2];  // 8 i + 2 q and the next one, in an iteration
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    skinny_gemm_kernel(const __grid_constant__ typename SkinnyGemm<Config>::Params params) {
  using Gemm = SkinnyGemm<Config>;
  if constexpr (Gemm::kDynamicBytes > 0) {
    extern __shared__ __align__(1024) uint8_t dynamic[];
    Gemm(params, reinterpret_cast<typename Gemm::SharedStorage&>(dynamic)).run();
  } else {
    __shared__ typename Gemm::SharedStorage storage;
    Gemm(params, storage).run();
  }
}

}  // namespace mixed_gemm
