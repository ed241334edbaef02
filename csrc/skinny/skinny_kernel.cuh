// The skinny family, for M up to about 16: every weight byte goes from device memory straight into
// mma fragments, no shared memory for B. Weights are the 16-row operand of mma.m16n8k16, tokens the
// 8-column one.
//
// Lane (g = lane / 4, q = lane % 4) loads the 16-byte block 4 i + q of columns g and g + 8 in
// iteration i. Which k an mma slot stands for is free as long as both operands agree: word r, pairs
// (2 s, 2 s + 1) of a lane's block feed mma (r, s), and 32-bit word r of its activation vectors 2 s
// and 2 s + 1 holds just the same k. So the tokens need no permutation.
//
// Scales. Coarse groups (multiples of an iteration): applied once per iteration to fp32 partial
// sums, after a zero point has been subtracted from the converted weights. Fine groups, where an
// mma mixes groups, and zeros that are added: converted weights are scaled. (Added ones times the
// group's activation sum, in fp32, took registers from both modes: 72 instead of 64, and with them
// every second block of 16 warps.) The warps of a block share out K and meet once, at the end.
#pragma once
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "dequant/apply_scale.h"
#include "dequant/integer_converter.h"
#include "epilogue/finish_one.cuh"
#include "kernel/gemm_args.h"
#include "layout/weight_layout.h"
#include "skinny/skinny_config.cuh"

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
  static constexpr int kMTiles = Config::kMTiles, kNTiles = Config::kNTiles;
  static constexpr int kLinesPerIteration = Config::kIterationK / Layout::kTileK;
  static constexpr int kStepsPerBlock =
      kStepsPerWord<Config::kBits>;  // mma steps of a word; halves of 16 k in a block
  static constexpr int kReductionStride = Config::kN + 1;  // odd: no bank conflicts between tokens

 public:
  struct Params {
    const Element* a;
    int64_t a_stride;
    const uint8_t* b;
    const Element* scales;
    const Element* zeros;
    int64_t scale_stride;
    int64_t octet_stride;  // bytes of the packed weight between columns n and n + 8
    int m, n, k, k_tiles, groups;
    cutlass::FastDivmod units_per_group;  // unit: an iteration when coarse, 16 k when fine
    ZeroMode zero_mode;
    OutputParams<Element> output;
  };
  using SharedStorage = float[Config::kRow.warps][Config::kM][kReductionStride];

  __device__ SkinnyGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        sums_(storage),
        warp_(threadIdx.x / 32),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        column0_(blockIdx.x * Config::kN),
        row0_(blockIdx.y * Config::kM) {
    const int n = column0_ + g_, tile = q_ / Layout::kBlocksPerTile,
              block = q_ % Layout::kBlocksPerTile;
    weights_ =
        p_.b +
        (static_cast<int64_t>(n / Layout::kInterleave) * p_.k_tiles + tile) * Layout::kLineBytes +
        (n % Layout::kInterleave * Layout::kBlocksPerTile + block) * 16;
  }

  __device__ void run() {
    constexpr int kStep = Config::kRow.warps;
    const int iterations = (p_.k_tiles + kLinesPerIteration - 1) / kLinesPerIteration;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      clear(accumulators_[j]);
      load_weights(warp_, j);
    }
    for (int i = warp_; i < iterations; i += kStep) {
      load_activations(i);
      // A tile's next weights are requested as soon as its registers are free, while the other
      // tiles are multiplied. The branch keeps ptxas from moving the requests up, where they would
      // need more registers than the cap leaves.
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) {
        multiply(j);
        if (i + kStep < iterations) load_weights(i + kStep, j);
      }
    }
    reduce_and_store();
  }

 private:
  static __device__ void clear(Quad (&tiles)[kMTiles]) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMTiles; ++i) tiles[i].clear();
  }

  // Addresses cost as much as arithmetic here: one pointer per operand, the rest are constant
  // offsets.
  __device__ void load_weights(int iteration, int j) {
    // Blocks past the end (half an iteration, or all of it) read as 0, a finite weight, and meet
    // zero activations.
    const bool inside = iteration * kLinesPerIteration + q_ / Layout::kBlocksPerTile < p_.k_tiles;
    const uint8_t* at = weights_ + 2 * j * p_.octet_stride +
                        static_cast<int64_t>(iteration) * (kLinesPerIteration * Layout::kLineBytes);
    raw_[j][0] = load_streaming(at, inside);
    raw_[j][1] = load_streaming(at + p_.octet_stride, inside);
    if constexpr (Config::kCoarse) load_coarse_scales(iteration, j);
    if constexpr (Config::kFine) load_fine_scales(iteration, j);
  }

  __device__ int64_t scale_row(int unit) const {
    return min(p_.units_per_group.div(unit), p_.groups - 1) * p_.scale_stride;
  }

  // One load for the 16 columns of a tile: lanes 0 to 15 get the scales, 16 to 31 the zeros.
  __device__ void load_coarse_scales(int iteration, int j) {
    const int lane = threadIdx.x % 32, n = column0_ + 16 * j + lane % 16;
    const Element* rows = Config::kZeros && lane >= 16 ? p_.zeros : p_.scales;
    const auto* from = reinterpret_cast<const uint16_t*>(rows) + scale_row(iteration) + n;
    coarse_[j] = n < p_.n ? __ldg(from) : uint16_t(0);
  }
  // Of column g + 8 * h.
  __device__ uint32_t coarse_scale(int j, int h) const {
    return __shfl_sync(0xffffffff, coarse_[j], 8 * h + g_);
  }
  __device__ uint32_t coarse_zero(int j, int h) const {
    return __shfl_sync(0xffffffff, coarse_[j], 16 + 8 * h + g_);
  }

  __device__ void load_fine_scales(int iteration, int j) {
    const int n = column0_ + 16 * j + g_;
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kStepsPerBlock; ++s) {
      const int64_t at = scale_row((4 * iteration + q_) * kStepsPerBlock + s) + n;
      const auto* scales = reinterpret_cast<const uint16_t*>(p_.scales) + at;
      const auto* zeros = reinterpret_cast<const uint16_t*>(p_.zeros) + at;
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const bool inside = n + 8 * h < p_.n;
        scale_[j][h][s] = inside ? __ldg(scales + 8 * h) : uint16_t(0);
        if constexpr (Config::kZeros) zero_[j][h][s] = inside ? __ldg(zeros + 8 * h) : uint16_t(0);
      }
    }
  }

  // 16 bytes, or zeros. Predicated in PTX: from C++ they become branches. Weights are read once by
  // one SM, so they should neither stay in L1 nor push activations out of it.
  static __device__ uint4 load_streaming(const void* pointer, bool inside) {
    uint4 v;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "
        "mov.b32 %3, 0;"
        " @p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
        : "l"(pointer), "r"(static_cast<int>(inside)));
    return v;
  }
  static __device__ uint4 load_cached(const void* pointer, bool inside) {
    uint4 v;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0; mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; "
        "mov.b32 %3, 0;"
        " @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
        : "l"(pointer), "r"(static_cast<int>(inside)));
    return v;
  }

  __device__ void load_activations(int iteration) {
    const int k0 = iteration * Config::kIterationK + q_ * Config::kBlockK;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMTiles; ++i) {
      const int row = row0_ + 8 * i + g_;
      const Element* source = p_.a + row * p_.a_stride + k0;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < Config::kVectors; ++v) {
        tokens_[i][v] = load_cached(source + 8 * v, row < p_.m && k0 + 8 * v < p_.k);
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

  __device__ void multiply(int j) {
    Quad partial[kMTiles];
    if constexpr (Config::kCoarse) clear(partial);
    uint32_t subtrahend[2] = {};  // of columns g and g + 8, in both halves
    if constexpr (Config::kCoarse && Config::kZeros) {
      subtrahend[0] = prmt<0x1010>(coarse_zero(j, 0), 0u);
      subtrahend[1] = prmt<0x1010>(coarse_zero(j, 1), 0u);
    }
    auto& target = Config::kCoarse ? partial : accumulators_[j];
    CUTLASS_PRAGMA_UNROLL
    for (int r = 0; r < 4; ++r) {
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < kStepsPerBlock; ++s) {
        uint32_t low[2], high[2];  // columns g and g + 8
        IntegerConverter<Format, Config::kBits>::convert_step(word(raw_[j][0], r), s, low);
        IntegerConverter<Format, Config::kBits>::convert_step(word(raw_[j][1], r), s, high);
        if constexpr (Config::kCoarse && Config::kZeros) {
          CUTLASS_PRAGMA_UNROLL
          for (int pair = 0; pair < 2; ++pair) {
            low[pair] = sub_x2<Format>(low[pair], subtrahend[0]);
            high[pair] = sub_x2<Format>(high[pair], subtrahend[1]);
          }
        }
        if constexpr (Config::kFine) {
          packed_scale(j, 0, s).template apply<Format, Config::kZeros>(p_.zero_mode, low);
          packed_scale(j, 1, s).template apply<Format, Config::kZeros>(p_.zero_mode, high);
        }
        const uint32_t weights[4] = {low[0], high[0], low[1], high[1]};
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kMTiles; ++i) {
          mma(target[i], weights, word(tokens_[i][2 * s], r), word(tokens_[i][2 * s + 1], r));
        }
      }
    }
    if constexpr (Config::kCoarse) add_scaled(j, partial);
  }

  // accumulators += scale * partial
  __device__ void add_scaled(int j, const Quad (&partial)[kMTiles]) {
    const float scales[2] = {to_float(coarse_scale(j, 0)), to_float(coarse_scale(j, 1))};
    CUTLASS_PRAGMA_UNROLL
    for (int e = 0; e < 4; ++e) {  // elements 0, 1: column g; 2, 3: column g + 8
      const float scale = scales[e / 2];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        accumulators_[j][i][e] = fmaf(scale, partial[i][e], accumulators_[j][i][e]);
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
          sums_[warp_][8 * i + 2 * q_ + e % 2][16 * j + 8 * (e / 2) + g_] = accumulators_[j][i][e];
        }
      }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < Config::kM * Config::kN; at += Config::kThreads) {
      const int row = at / Config::kN, column = at % Config::kN;
      if (row0_ + row >= p_.m || column0_ + column >= p_.n) continue;
      float total = 0.f;
      CUTLASS_PRAGMA_UNROLL
      for (int warp = 0; warp < Config::kRow.warps; ++warp) total += sums_[warp][row][column];
      finish_one(p_.output, row0_ + row, column0_ + column, total);
    }
  }

  const Params& p_;
  SharedStorage& sums_;
  int warp_, g_, q_, column0_, row0_;
  const uint8_t* weights_;  // block q of column g in iteration 0
  uint4 raw_[kNTiles][2];
  // As loaded: any arithmetic on them next to the loads would wait for the memory.
  uint16_t coarse_[kNTiles];  // of column lane % 16
  uint16_t scale_[kNTiles][2][kStepsPerBlock], zero_[kNTiles][2][kStepsPerBlock];  // fine
  uint4 tokens_[kMTiles][Config::kVectors];
  Quad accumulators_[kNTiles][kMTiles];
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    skinny_gemm_kernel(const __grid_constant__ typename SkinnyGemm<Config>::Params params) {
  __shared__ typename SkinnyGemm<Config>::SharedStorage storage;
  SkinnyGemm<Config>(params, storage).run();
}

}  // namespace mixed_gemm
