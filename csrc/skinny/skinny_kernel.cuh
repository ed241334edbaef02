// The skinny family, for M up to about 16: every weight byte goes from device memory straight into
// mma fragments, no shared memory for B. Weights are the 16-row operand of mma.m16n8k16, tokens the
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
// Instructions and waiting in the loop are what counts (57344 x 8192, M = 1, us: 71 with addresses
// from scratch, registers zeroed before predicated loads and moves; 63 without). A value that was
// spilled or packed right after its load waits for memory there: with 8 bytes of spills, 72.
//
// Scales. Groups that are multiples of half an iteration: applied to fp32 partial sums. Zero points
// are part of the conversion (dequant/offset_converter.h), or subtracted from converted weights
// where one of the warp's does not fit there; in blocks of 64 columns they and the bias of the
// layout leave with the sums of the tokens (Config::kStored).
//
// Groups of a quarter of an iteration are those of the lanes of a quad, which an mma adds up. So up
// to 2 tokens are spread over the 8 columns of their operand, 2 for each lane, with zeros where the
// k are another lane's: the sums of a lane are then those of its own group, and the quad's are
// added at the end (57344 x 8192, groups of 32, M = 1: 71 us for 81). More tokens, smaller groups,
// and zeros that are added: converted weights are scaled. The warps of a block and the blocks of a
// cluster share out K and meet once, at the end.
#pragma once
#include <type_traits>

#include "kernel/early_start.cuh"
#include "kernel/gemm_args.h"
#include "layout/weight_layout.h"
#include "skinny/direct_tokens.cuh"
#include "skinny/predicated_load.cuh"
#include "skinny/skinny_config.cuh"
#include "skinny/skinny_products.cuh"
#include "skinny/skinny_reduction.cuh"
#include "skinny/skinny_scales.cuh"
#include "skinny/token_stage.cuh"

namespace mixed_gemm {

template <typename Config>
class SkinnyGemm {
  using Element = typename Config::Element;
  using Format = typename Config::Format;
  using Layout = WeightLayout<Config::kBits>;
  using Products = SkinnyProducts<Config>;
  using Sums = typename Products::Sums;
  using Pairs = typename Products::Pairs;
  using Tokens = std::conditional_t<Config::kStaged, TokenStage<Config>, DirectTokens<Config>>;
  using Fragment = typename Tokens::Fragment;
  static constexpr int kMTiles = Config::kMTiles, kNTiles = Config::kNTiles;
  static constexpr int kLinesPerIteration = Config::kIterationK / Layout::kTileK;
  static constexpr int kStepsPerBlock = Products::kStepsPerBlock;
  static constexpr int kSteps = 2 * kStepsPerBlock;  // of a tile and iteration
  static constexpr int kPartSteps = kSteps / Config::kParts;
  static constexpr bool kSubtracts = Config::kScalesSums && Config::kZeros && !Config::kStored;
  static constexpr int kWarps = Config::kRow.warps;
  // A loop of its own for zero points that are subtracted: with a branch in every iteration folded
  // ones cost 2 to 4 % more. (In the short loop of a single tile it is 2 % the other way round.)
  static constexpr bool kStops = Config::kFolds && kNTiles > 1;
  using Converter = typename Config::Converter;
  static constexpr float kUnit = Converter::kUnit;
  // Sums of the tokens, for weights as they are stored. With zero points they are made before the
  // tiles; without, beside the first one, since an mma right behind another one of the same sums
  // waits (1 to 2 %; zero points have no registers for it), and the other tiles begin with them.
  static constexpr bool kSumsTokens = Config::kStored && Config::kZeros;
  static constexpr bool kSumsBias = Config::kStored && !Config::kZeros;
  using Reduction = SkinnyReduction<Config>;

 public:
  struct Params {
    const Element* a;
    int64_t a_stride;
    const uint8_t* b;
    SkinnyScaleParams<Element> scales;
    int octet_stride;  // bytes of the packed weight between columns n and n + 8
    int m, n, k, k_tiles;
    int share;  // iterations of a block
    ZeroMode zero_mode;
    OutputParams<Element> output;
  };
  // What a warp stages, then its sums.
  union alignas(16) WarpStorage {
    typename Tokens::Storage tokens;
    typename Reduction::WarpSums sums;
  };
  struct SharedStorage {
    typename Reduction::Storage reduction;
    WarpStorage warps[kWarps];
  };

  __device__ SkinnyGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        storage_(storage),
        reduction_(storage.reduction),
        warp_(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        column0_(blockIdx.x * Config::kN),
        row0_(blockIdx.y * Config::kM),
        first_((Config::kSplits ? blockIdx.z * p_.share : 0) + warp_),
        tokens_(storage.warps[warp_].tokens, p_.a + row0_ * p_.a_stride, p_.a_stride, p_.m - row0_,
                p_.k, first_),
        scales_(p_.scales, column0_) {
    const int n = column0_ + g_, first = Config::kHalf ? q_ / 2 : q_;
    const int tile = first / Layout::kBlocksPerTile, block = first % Layout::kBlocksPerTile;
    const int line = first_ * kLinesPerIteration + tile;
    weights_ =
        p_.b +
        (static_cast<int64_t>(n / Layout::kInterleave) * p_.k_tiles + line) * Layout::kLineBytes +
        (n % Layout::kInterleave * Layout::kBlocksPerTile + block) * 16;
    if (Config::kHalf) weights_ += q_ % 2 * 8;
    const int last_tile = Config::kHalf ? kLinesPerIteration - 1 : tile;
    iterations_ = (p_.k_tiles - last_tile + kLinesPerIteration - 1) / kLinesPerIteration;
    // Opaque, or it is made anew from the thread index in every iteration, a slow read.
    asm volatile("" : "+r"(iterations_));
  }

  __device__ void run() {
    int end = (p_.k_tiles + kLinesPerIteration - 1) / kLinesPerIteration;
    if (Config::kSplits) end = min(end, (static_cast<int>(blockIdx.z) + 1) * p_.share);
    wait_for_kernel_before();
    // Before the loads or after them: 3 to 5 % at 6144 x 4096 with 32 columns, and 2 to 3 % the
    // other way round with larger blocks.
    if (!Config::kLarge) reduction_.start(p_.m - row0_);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      raw_[j][0] = raw_[j][1] = uint4{};
      load_weights(first_, j);
    }
    Fragment tokens = {};
    if (first_ < end) {
      tokens_.request();
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) scales_.load(first_, j);
    }
    let_kernel_after_start();
    if (Config::kLarge) reduction_.start(p_.m - row0_);
    const Position stop = multiply_all<Config::kFolds>({first_, 0}, end, tokens, false);
    if constexpr (kStops) multiply_all<false>(stop, end, tokens, true);
    reduce_and_store();
  }

 private:
  struct Position {
    int iteration, tile;
  };

  // From a position on; where it stopped. taken: the tokens are there. kFolded: zero points become
  // part of the conversion where they fit, and kStops before those that do not. Each tile's are
  // looked at when it is its turn: those of the last one have just been requested when an iteration
  // begins.
  template <bool kFolded>
  __device__ Position multiply_all(Position from, int end, Fragment& tokens, bool taken) {
    for (int at = from.iteration; at < end; at += kWarps) {
      const int next = at + kWarps;
      if (!taken) {
        tokens_.take(tokens, at);
        if (next < end) tokens_.request();
        weights_ += kWarps * kLinesPerIteration * Layout::kLineBytes;
      }
      taken = false;
      if constexpr (kSumsTokens) {
        CUTLASS_PRAGMA_UNROLL
        for (int step = 0; step < kSteps; ++step) sum_tokens(tokens, step);
      }
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) {
        if constexpr (kFolded) {
          const FoldedZero zero = scales_.folded_zero(j);
          const bool fits = __all_sync(0xffffffff, zero.fits);
          if (kStops && !fits) return {at, j};
          if (kStops || fits) {
            multiply_tile<true>(j, tokens, zero.packed, next, next < end);
            continue;
          }
        }
        if (kStops && j < from.tile) continue;
        multiply_tile<false>(j, tokens, 0u, next, next < end);
      }
      if (kStops && !kFolded) from.tile = 0;
    }
    return {end, 0};
  }

  // A tile's weights meet the tokens, and its next ones are requested as soon as its registers are
  // free, while the other tiles are multiplied. The branch keeps ptxas from moving the requests up,
  // where they would need more registers than the cap leaves.
  template <bool kFolded>
  __device__ void multiply_tile(int j, const Fragment& tokens, uint32_t folded, int next,
                                bool more) {
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < Config::kParts; ++part) {
      PairOffsets zeros[2] = {};  // of columns g and g + 8
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        if constexpr (kFolded) {
          zeros[h] = scales_.offsets(folded, h);
        } else if constexpr (kSubtracts) {
          uint32_t zero = prmt<0x1010>(scales_.zero_bits(j, part, h), 0u);
          if constexpr (kUnit != 1.f) zero = mul_x2<Format>(zero, Converter::kUnitX2);
          zeros[h] = {zero, zero};
        }
      }
      multiply_part<kFolded>(j, part, tokens, zeros, next, more);
    }
  }

  // kFolded: zeros are offsets of the converter, else what is subtracted.
  template <bool kFolded>
  __device__ void multiply_part(int j, int part, const Fragment& tokens,
                                const PairOffsets (&zeros)[2], int next, bool more) {
    Sums partial, low;  // low: of pairs 0, where these have a unit of their own
    if (kSumsBias && Config::kScalesSums && j > 0) partial = token_sums_;
    Sums& high = Config::kScalesSums ? partial : accumulators_[j];
    Sums* const sums[2] = {Converter::kRatio == 1 ? &high : &low, &high};
    const int last = (part + 1) * kPartSteps - 1;
    CUTLASS_PRAGMA_UNROLL
    for (int step = part * kPartSteps; step < last; ++step) {
      Products::multiply(sums, converted<kFolded>(j, step, zeros), tokens, step);
      if (kSumsBias && j == 0) sum_tokens(tokens, step);
    }
    const Pairs pairs = converted<kFolded>(j, last, zeros);
    float scales[2], offsets[2] = {};
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      scales[h] = scales_.scale(j, part, h);
      if constexpr (kSumsTokens) {
        offsets[h] = fmaf(scales_.zero(j, part, h), -kUnit, -Converter::kBias * kUnit);
      }
    }
    const bool free = part + 1 == Config::kParts, early = free && Config::kRequestsEarly;
    if (kSumsBias && j == 0) sum_tokens(tokens, last);
    if (!early) Products::multiply(sums, pairs, tokens, last);
    if (free && more) {
      load_weights(next, j);
      scales_.load(next, j);
    }
    if (early) Products::multiply(sums, pairs, tokens, last);
    if constexpr (Converter::kRatio != 1) Products::add(high, low, Converter::kRatio);
    if (kSumsBias && Config::kScalesSums && j == 0) Products::add(high, token_sums_, 1);
    if constexpr (Config::kScalesSums) add_scaled(j, scales, offsets, partial);
  }

  // Blocks past the end (half an iteration, or all of it) keep the weights that were there, which
  // are finite, and meet activations that are 0.
  __device__ void load_weights(int iteration, int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const uint8_t* at = weights_ + static_cast<int64_t>(p_.octet_stride) * (2 * j + h);
      uint4& raw = raw_[j][h];
      if constexpr (Config::kHalf) {
        constexpr int kOtherHalf = Layout::kBlocksPerTile == 2 ? Layout::kLineBytes : 32;
        load_once_if(iteration * kLinesPerIteration < p_.k_tiles, raw.x, raw.y, at);
        load_once_if(iteration < iterations_, raw.z, raw.w, at + kOtherHalf);
      } else {
        load_once_if(iteration < iterations_, raw, at);
      }
    }
  }

  // Step s of words 2 w and 2 w + 1: step = kStepsPerBlock * w + s.
  template <bool kFolded>
  __device__ Pairs converted(int j, int step, const PairOffsets (&zeros)[2]) const {
    const int w = step / kStepsPerBlock, s = step % kStepsPerBlock;
    Pairs pairs;
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < 2; ++r) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint32_t two[2];
        const uint32_t packed = Products::word(raw_[j][h], 2 * w + r);
        if constexpr (Config::kOffsets) {
          constexpr auto kNone = PairOffsets::constant(Converter::kPacked);
          Converter::convert_step(packed, s, kFolded ? zeros[h] : kNone, two);
        } else {
          Converter::convert_step(packed, s, two);
        }
        if constexpr (kSubtracts && !kFolded) {
          two[0] = sub_x2<Format>(two[0], zeros[h].first);
          two[1] = sub_x2<Format>(two[1], zeros[h].second);
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

  // A step's tokens join their sums, which are those of an iteration, or of all where scales wait
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
  __device__ void add_scaled(int j, const float (&scales)[2], const float (&offsets)[2],
                             const Sums& partial) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 4; ++e) {  // elements 0, 1: column g; 2, 3: column g + 8
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        float product = partial.of[i][e];
        if constexpr (kSumsTokens) {
          product = fmaf(offsets[e / 2], token_sums_.of[i][e % 2], product);
        }
        float& sum = accumulators_[j].of[i][e];
        sum = fmaf(scales[e / 2], product, sum);
      }
    }
  }

  __device__ void reduce_and_store() {
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
              sum = fmaf(token_sums_.of[i][e], -Converter::kBias * kUnit, sum);
            }
            sums[8 * i + 2 * q_ + e % 2][16 * j + 8 * (e / 2) + g_] = sum;
          }
        }
      }
    }
    reduction_.store(storage_.warps, 1 / kUnit, p_.m - row0_, row0_, column0_, p_.output);
  }

  const Params& p_;
  SharedStorage& storage_;
  Reduction reduction_;
  int warp_, g_, q_, column0_, row0_;
  int first_;  // of this warp's iterations
  Tokens tokens_;
  SkinnyScales<Config> scales_;
  const uint8_t* weights_;  // this lane's in the next iteration, of column g
  int iterations_;          // that have all of this lane's blocks
  uint4 raw_[kNTiles][2];   // of columns g and g + 8
  Sums accumulators_[kNTiles];
  Sums token_sums_;
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    skinny_gemm_kernel(const __grid_constant__ typename SkinnyGemm<Config>::Params params) {
  __shared__ typename SkinnyGemm<Config>::SharedStorage storage;
  SkinnyGemm<Config>(params, storage).run();
}

}  // namespace mixed_gemm
