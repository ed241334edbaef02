// The skinny family, for M up to about 16: every weight byte goes from device memory straight into
// mma fragments, no shared memory for B. Weights are the 16-row operand of mma.m16n8k16, tokens the
// 8-column one.
//
// Lane (g = lane / 4, q = lane % 4) loads the 16-byte block 4 i + q of columns g and g + 8 in
// iteration i. Which k an mma slot stands for is free as long as both operands agree: pair v of
// words 2 w and 2 w + 1 of a lane's block feed mma (v, w), and 32-bit words 2 w and 2 w + 1 of its
// activation vector v hold just the same k. So the tokens need no permutation, and the two words
// are neighbours, as mma wants them (words of two vectors had to be moved: 16 instructions a tile).
//
// Instructions and waiting in the loop are what counts (57344 x 8192, M = 1, us: 71 with addresses
// from scratch, registers zeroed before predicated loads and moves; 63 without). A value that was
// spilled or packed right after its load waits for memory there: with 8 bytes of spills, 72.
//
// Scales. Coarse groups (multiples of an iteration): applied once per iteration to fp32 partial
// sums, after a zero point has been subtracted from the converted weights. Fine groups, where an
// mma mixes groups, and zeros that are added: converted weights are scaled. (Added ones times the
// group's activation sum, in fp32, took registers from both modes: 72 instead of 64, and with them
// every second block of 16 warps.) The warps of a block share out K and meet once, at the end.
#pragma once
#include <type_traits>

#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "dequant/apply_scale.h"
#include "dequant/integer_converter.h"
#include "epilogue/finish_one.cuh"
#include "kernel/early_start.cuh"
#include "kernel/gemm_args.h"
#include "layout/weight_layout.h"
#include "skinny/direct_tokens.cuh"
#include "skinny/predicated_load.cuh"
#include "skinny/skinny_config.cuh"
#include "skinny/token_stage.cuh"

namespace mixed_gemm {

template <typename Config>
class SkinnyGemm {
  using Element = typename Config::Element;
  using Format = typename Config::Format;
  using Layout = WeightLayout<Config::kBits>;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
  using Quad = cutlass::Array<float, 4>;
  using Tokens = std::conditional_t<Config::kStaged, TokenStage<Config>, DirectTokens<Config>>;
  using Fragment = typename Tokens::Fragment;
  static constexpr int kMTiles = Config::kMTiles, kNTiles = Config::kNTiles;
  static constexpr int kLinesPerIteration = Config::kIterationK / Layout::kTileK;
  static constexpr int kStepsPerBlock =
      kStepsPerWord<Config::kBits>;  // mma steps of a word; halves of 16 k in a block
  static constexpr int kSteps = 2 * kStepsPerBlock;  // of a tile and iteration
  static constexpr int kScaleSteps = Config::kFine ? kStepsPerBlock : 1;
  static constexpr bool kSubtracts = Config::kCoarse && Config::kZeros;
  // Lanes load scales and zeros for each other. (Before sm_90 ptxas needs registers for one more.)
  static constexpr bool kShared = kSubtracts || (Config::kCoarse && kBeforeSm90);
  static constexpr int kWarps = Config::kRow.warps;

  static constexpr int kReductionStride = Config::kN + 1;  // odd: no bank conflicts between tokens

 public:
  struct Params {
    const Element* a;
    int64_t a_stride;
    const uint8_t* b;
    const Element* scales;
    const Element* zeros;
    int scale_stride;
    int octet_stride;  // bytes of the packed weight between columns n and n + 8
    int m, n, k, k_tiles, groups;
    cutlass::FastDivmod units_per_group;  // unit: an iteration when coarse, 16 k when fine
    ZeroMode zero_mode;
    OutputParams<Element> output;
  };
  // What a warp stages, then its sums.
  union WarpStorage {
    typename Tokens::Storage tokens;
    float sums[Config::kM][kReductionStride];
  };
  using SharedStorage = WarpStorage[kWarps];

  __device__ SkinnyGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        storage_(storage),
        warp_(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        column0_(blockIdx.x * Config::kN),
        row0_(blockIdx.y * Config::kM),
        tokens_(storage[warp_].tokens, p_.a + row0_ * p_.a_stride, p_.a_stride, p_.m - row0_, p_.k,
                warp_) {
    const int n = column0_ + g_, tile = q_ / Layout::kBlocksPerTile,
              block = q_ % Layout::kBlocksPerTile;
    const int line = warp_ * kLinesPerIteration + tile;
    weights_ =
        p_.b +
        (static_cast<int64_t>(n / Layout::kInterleave) * p_.k_tiles + line) * Layout::kLineBytes +
        (n % Layout::kInterleave * Layout::kBlocksPerTile + block) * 16;
    column_ = kShared ? column0_ + threadIdx.x % 16 : n;
    iterations_ = (p_.k_tiles - tile + kLinesPerIteration - 1) / kLinesPerIteration;
    // Opaque, or they are made anew from the thread index in every iteration, a slow read.
    asm volatile("" : "+r"(iterations_), "+r"(column_));
  }

  __device__ void run() {
    constexpr int kStepLines = kWarps * kLinesPerIteration;
    const int iterations = (p_.k_tiles + kLinesPerIteration - 1) / kLinesPerIteration;
    wait_for_kernel_before();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      raw_[j][0] = raw_[j][1] = uint4{};
      load_weights(warp_, j);
    }
    Fragment tokens = {};
    if (warp_ < iterations) {
      tokens_.request();
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) load_scales(warp_, j);
    }
    let_kernel_after_start();
    for (int i = warp_; i < iterations; i += kWarps) {
      const int next = i + kWarps;
      tokens_.take(tokens, i);
      if (next < iterations) tokens_.request();
      weights_ += kStepLines * Layout::kLineBytes;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) multiply_tile(j, tokens, next, next < iterations);
    }
    reduce_and_store();
  }

 private:
  // A tile's weights meet the tokens, and its next ones are requested as soon as its registers are
  // free, while the other tiles are multiplied. The branch keeps ptxas from moving the requests up,
  // where they would need more registers than the cap leaves.
  __device__ void multiply_tile(int j, const Fragment& tokens, int next, bool more) {
    Sums partial;
    Sums& target = Config::kCoarse ? partial : accumulators_[j];
    uint32_t zeros[2] = {};  // of columns g and g + 8, in both halves
    if constexpr (kSubtracts) {
      zeros[0] = prmt<0x1010>(zero(j, 0), 0u);
      zeros[1] = prmt<0x1010>(zero(j, 1), 0u);
    }
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kSteps - 1; ++step) {
      multiply(target, converted(j, step, zeros), tokens, step);
    }
    const Pairs last = converted(j, kSteps - 1, zeros);
    const float scales[2] = {to_float(scale(j, 0)), to_float(scale(j, 1))};
    if constexpr (!Config::kRequestsEarly) multiply(target, last, tokens, kSteps - 1);
    if (more) {
      load_weights(next, j);
      load_scales(next, j);
    }
    if constexpr (Config::kRequestsEarly) multiply(target, last, tokens, kSteps - 1);
    if constexpr (Config::kCoarse) add_scaled(j, scales, partial);
  }

  // Blocks past the end (half an iteration, or all of it) keep the weights that were there, which
  // are finite, and meet activations that are 0.
  __device__ void load_weights(int iteration, int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int64_t octet = static_cast<int64_t>(p_.octet_stride) * (2 * j + h);
      load_once_if(iteration < iterations_, raw_[j][h], weights_ + octet);
    }
  }

  // Sums of a tile's products, one array for each 8 tokens.
  struct Sums {
    Quad of[kMTiles];
    __device__ Sums() {
      CUTLASS_PRAGMA_UNROLL
      for (Quad& tokens : of) tokens.clear();
    }
  };

  __device__ void load_scales(int iteration, int j) {
    if constexpr (Config::kScaled) {
      if constexpr (kShared) {
        load_shared_scales(iteration, j);
      } else {
        load_own_scales(iteration, j);
      }
    }
  }

  // One load for the 16 columns of a tile: lanes 0 to 15 get the scales, 16 to 31 the zeros. Two
  // shuffles for each of them cost less than the registers of four loads, but more than two loads.
  __device__ void load_shared_scales(int iteration, int j) {
    const int row = p_.units_per_group.div(iteration);
    const Element* rows = kSubtracts && threadIdx.x % 32 >= 16 ? p_.zeros : p_.scales;
    const Element* at = rows + static_cast<int64_t>(row) * p_.scale_stride + column_;
    load_16_bits_if(column_ + 16 * j < p_.n, shared_[j], at + 16 * j);
  }
  // Of column g + 8 * h.
  __device__ uint32_t scale(int j, int h) const {
    return kShared ? __shfl_sync(0xffffffff, shared_[j], 8 * h + g_) : scale_[j][h][0];
  }
  __device__ uint32_t zero(int j, int h) const {
    return __shfl_sync(0xffffffff, shared_[j], 16 + 8 * h + g_);
  }

  __device__ void load_own_scales(int iteration, int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kScaleSteps; ++s) {
      const int unit = Config::kFine ? (4 * iteration + q_) * kScaleSteps + s : iteration;
      int row = p_.units_per_group.div(unit);
      if constexpr (Config::kFine) row = min(row, p_.groups - 1);  // of a block past the end
      const int64_t at = static_cast<int64_t>(row) * p_.scale_stride + column_;
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int column = 16 * j + 8 * h;
        const bool inside = column_ + column < p_.n;
        load_16_bits_if(inside, scale_[j][h][s], p_.scales + at + column);
        if constexpr (Config::kZeros)
          load_16_bits_if(inside, zero_[j][h][s], p_.zeros + at + column);
      }
    }
  }

  static __device__ uint32_t word(const uint4& v, int r) {
    return r == 0 ? v.x : r == 1 ? v.y : r == 2 ? v.z : v.w;
  }

  static __device__ void mma(Quad& d, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    const uint32_t b[2] = {b0, b1};
    Mma()(d, reinterpret_cast<const cutlass::Array<Element, 8>&>(a),
          reinterpret_cast<const cutlass::Array<Element, 4>&>(b), d);
  }

  // Step s of words 2 w and 2 w + 1 of columns g and g + 8, as operands of mma: one for each pair
  // of k of a word. step = kStepsPerBlock * w + s.
  struct Pairs {
    uint32_t operand[2][4];
  };
  __device__ Pairs converted(int j, int step, const uint32_t (&zeros)[2]) const {
    const int w = step / kStepsPerBlock, s = step % kStepsPerBlock;
    Pairs pairs;
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < 2; ++r) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        uint32_t two[2];
        IntegerConverter<Format, Config::kBits>::convert_step(word(raw_[j][h], 2 * w + r), s, two);
        if constexpr (kSubtracts) {
          two[0] = sub_x2<Format>(two[0], zeros[h]);
          two[1] = sub_x2<Format>(two[1], zeros[h]);
        }
        if constexpr (Config::kFine) {
          packed_scale(j, h, s).template apply<Format, Config::kZeros>(p_.zero_mode, two);
        }
        pairs.operand[0][2 * r + h] = two[0];
        pairs.operand[1][2 * r + h] = two[1];
      }
    }
    return pairs;
  }

  __device__ void multiply(Sums& sums, const Pairs& pairs, const Fragment& tokens, int step) {
    const int w = step / kStepsPerBlock, s = step % kStepsPerBlock;
    CUTLASS_PRAGMA_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        const uint4& token = tokens[i][2 * s + pair];
        mma(sums.of[i], pairs.operand[pair], word(token, 2 * w), word(token, 2 * w + 1));
      }
    }
  }

  // accumulators += scale * partial
  __device__ void add_scaled(int j, const float (&scales)[2], const Sums& partial) {
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 4; ++e) {  // elements 0, 1: column g; 2, 3: column g + 8
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        float& sum = accumulators_[j].of[i][e];
        sum = fmaf(scales[e / 2], partial.of[i][e], sum);
      }
    }
  }

  __device__ PackedScale packed_scale(int j, int h, int s) const {
    return PackedScale::pack(scale_[j][h][s], Config::kZeros ? zero_[j][h][s] : uint16_t(0));
  }

  static __device__ float to_float(uint32_t bits) {
    const auto half = static_cast<uint16_t>(bits);
    return float(reinterpret_cast<const Element&>(half));
  }

  // Warps meet in shared memory and are added in order, an output a thread: with 8 outputs a thread
  // the tail of every block cost 4 of 76 us at 57344 x 8192.
  __device__ void reduce_and_store() {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          storage_[warp_].sums[8 * i + 2 * q_ + e % 2][16 * j + 8 * (e / 2) + g_] =
              accumulators_[j].of[i][e];
        }
      }
    }
    __syncthreads();
    const int rows = min(p_.m - row0_, Config::kM);
    for (int at = threadIdx.x; at < rows * Config::kN; at += Config::kThreads) {
      const int row = at / Config::kN, column = at % Config::kN;
      if (column0_ + column >= p_.n) continue;
      float total = 0.f;
      CUTLASS_PRAGMA_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) total += storage_[warp].sums[row][column];
      finish_one(p_.output, row0_ + row, column0_ + column, total);
    }
  }

  const Params& p_;
  SharedStorage& storage_;
  int warp_, g_, q_, column0_, row0_;
  Tokens tokens_;
  const uint8_t* weights_;  // block q of column g in the next iteration
  int iterations_;          // that have a block q
  int column_;              // whose scale this lane loads: the first
  uint4 raw_[kNTiles][2];   // of columns g and g + 8
  // As loaded: any arithmetic on them next to the loads would wait for the memory.
  uint32_t shared_[kNTiles] = {};
  uint32_t scale_[kNTiles][2][kScaleSteps] = {}, zero_[kNTiles][2][kScaleSteps] = {};
  Sums accumulators_[kNTiles];
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    skinny_gemm_kernel(const __grid_constant__ typename SkinnyGemm<Config>::Params params) {
  __shared__ typename SkinnyGemm<Config>::SharedStorage storage;
  SkinnyGemm<Config>(params, storage).run();
}

}  // namespace mixed_gemm
