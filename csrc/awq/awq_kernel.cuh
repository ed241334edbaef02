// Skinny GEMM straight on AutoAWQ tensors: like skinny/, every weight byte goes from device memory
// into mma fragments, once. Weights are the 16-row operand of mma.m16n8k16, tokens the 8-column
// one.
//
// Lane (g = lane / 4, q = lane % 4) reads words of octets g * kWords .. of the rows
// 8 q .. 8 q + 7 of a step of 32 k. Which k an mma slot stands for is free as long as both operands
// agree: mma s of a step takes k = 8 q + 4 s + 0, 1 in its slots 2 q, 2 q + 1 and 8 q + 4 s + 2, 3
// in 2 q + 8, 2 q + 9, so the words of a lane's 16-byte activation vector are its fragments. Row g
// of mma t is column 2 t of the octet, row g + 8 column 2 t + 1 (awq_converter.h). The k of a lane
// lie in one group, since group sizes are multiples of 16.
//
// The warps of a block share out K and meet in shared memory; so do the blocks of a cluster
// (sm_90), where the output is too narrow for the GPU: at 4096 x 4096 it has 64 blocks.
#pragma once
#include <cooperative_groups.h>

#include "awq/awq_config.h"
#include "awq/awq_converter.h"
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "epilogue/finish_one.cuh"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Element>
struct AwqParams {
  const Element* a;  // rows start on 16 bytes
  int64_t a_stride;
  const uint32_t* qweight;
  const uint32_t* qzeros;
  const Element* scales;
  int m, n, k;  // k: a multiple of 8
  cutlass::FastDivmod group_size;
  OutputParams<Element> output;
};

template <typename Element, int kRow>
class AwqGemm {
  using Format = typename FormatOf<Element>::Type;
  using Converter = AwqConverter<Format>;
  using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                 cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                 float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
  using Quad = cutlass::Array<float, 4>;
  static constexpr AwqConfig kConfig = kAwqConfigs[kRow];
  static constexpr int kMTiles = kConfig.m_tiles, kWords = kConfig.words, kWarps = kConfig.warps;
  static constexpr int kStepK = 32, kSteps = kConfig.steps;
  static constexpr int kUnitK = kStepK * kSteps;

 public:
  using Params = AwqParams<Element>;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kM = 8 * kMTiles, kN = 64 * kWords;  // of a block
  using SharedStorage = float[kWarps][kM][kN + 1];          // odd: fewer bank conflicts

  __device__ AwqGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        sums_(storage),
        warp_(threadIdx.x / 32),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        row0_(blockIdx.y * kM) {
    octet_ = blockIdx.x * 8 * kWords + g_ * kWords;
    columns_ = octet_ * 8 < p_.n;  // words of a lane exist together: n % (8 kWords) == 0
  }

  __device__ void run() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kWords * 4; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMTiles; ++j) accumulators_[i][j].clear();
    }
    const int units = (p_.k + kUnitK - 1) / kUnitK;
    const int first = blockIdx.z * kWarps + warp_, stride = gridDim.z * kWarps;
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kSteps; ++step) load_weights(first, step);
#pragma unroll 1
    for (int unit = first; unit < units; unit += stride) {
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        multiply(unit, step);
        load_weights(unit + stride, step);  // into the registers that are free now
      }
    }
    reduce_and_store();
  }

 private:
  // First k of this lane.
  __device__ int lane_k(int unit, int step) const { return unit * kUnitK + step * kStepK + 8 * q_; }

  // 8 rows of kWords words; zeros past the end, which are finite weights and meet zero activations.
  __device__ void load_weights(int unit, int step) {
    const int k = lane_k(unit, step);
    const int stride = p_.n / 8;
    const uint32_t* at = p_.qweight + static_cast<int64_t>(k) * stride + octet_;
    const bool inside = columns_ && k < p_.k;
    CUTLASS_PRAGMA_UNROLL
    for (int row = 0; row < 8; ++row) load_words(raw_[step][row], at + row * stride, inside);
  }

  // Read once by one SM: not into L1. The neighbouring block reads the rest of the line.
  static __device__ void load_words(uint32_t (&words)[kWords], const uint32_t* from, bool inside) {
    if constexpr (kWords == 1) {
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %2, 0; mov.b32 %0, 0;"
          " @p ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1]; }"
          : "=&r"(words[0])
          : "l"(from), "r"(static_cast<int>(inside)));
    } else {
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %3, 0; mov.b32 %0, 0; mov.b32 %1, 0;"
          " @p ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2]; }"
          : "=&r"(words[0]), "=&r"(words[1])
          : "l"(from), "r"(static_cast<int>(inside)));
    }
  }

  __device__ void multiply(int unit, int step) {
    const int k = lane_k(unit, step);
    uint4 tokens[kMTiles];
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMTiles; ++j) {
      const int row = row0_ + 8 * j + g_;
      tokens[j] = make_uint4(0, 0, 0, 0);
      if (row < p_.m && k < p_.k) {
        tokens[j] = __ldg(reinterpret_cast<const uint4*>(p_.a + row * p_.a_stride + k));
      }
    }
    const int64_t group = p_.group_size.div(min(k, p_.k - 1));
    CUTLASS_PRAGMA_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const int octet = columns_ ? octet_ + w : 0;
      const uint32_t zero_word = __ldg(p_.qzeros + group * (p_.n / 8) + octet);
      const uint4 scales = __ldg(reinterpret_cast<const uint4*>(p_.scales + group * p_.n) + octet);
      multiply_octet(step, w, zero_word, scales, tokens);
    }
  }

  __device__ void multiply_octet(int step, int w, uint32_t zero_word, const uint4& scales,
                                 const uint4 (&tokens)[kMTiles]) {
    const auto zeros = Converter::interleave(zero_word, zero_word);
    const uint32_t scale_words[4] = {scales.x, scales.y, scales.z, scales.w};
    typename Converter::Halves pairs[4];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      pairs[i] = Converter::interleave(raw_[step][2 * i][w], raw_[step][2 * i + 1][w]);
    }
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < 4; ++t) {
      const uint32_t zero_even = Converter::biased(zeros.low, t);
      const uint32_t zero_odd = Converter::biased(zeros.high, t);
      const uint32_t scale_even = prmt<0x1010>(scale_words[t], 0u);
      const uint32_t scale_odd = prmt<0x3232>(scale_words[t], 0u);
      CUTLASS_PRAGMA_UNROLL
      for (int s = 0; s < 2; ++s) {
        uint32_t weights[4];
        CUTLASS_PRAGMA_UNROLL
        for (int h = 0; h < 2; ++h) {
          const auto& pair = pairs[2 * s + h];
          weights[2 * h] =
              Converter::dequantize(Converter::biased(pair.low, t), zero_even, scale_even);
          weights[2 * h + 1] =
              Converter::dequantize(Converter::biased(pair.high, t), zero_odd, scale_odd);
        }
        CUTLASS_PRAGMA_UNROLL
        for (int j = 0; j < kMTiles; ++j) {
          const uint32_t b[2] = {s == 0 ? tokens[j].x : tokens[j].z,
                                 s == 0 ? tokens[j].y : tokens[j].w};
          Quad& sum = accumulators_[4 * w + t][j];
          Mma()(sum, reinterpret_cast<const cutlass::Array<Element, 8>&>(weights),
                reinterpret_cast<const cutlass::Array<Element, 4>&>(b), sum);
        }
      }
    }
  }

  // Warps meet in shared memory and are added in order.
  __device__ void reduce_and_store() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 4 * kWords; ++i) {
      const int column = 8 * (g_ * kWords + i / 4) + 2 * (i % 4);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kMTiles; ++j) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          sums_[warp_][8 * j + 2 * q_ + e % 2][column + e / 2] = accumulators_[i][j][e];
        }
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int at = threadIdx.x; at < kM * kN; at += kThreads) {
      const int row = at / kN, column = at % kN;
      float total = 0.f;
      CUTLASS_PRAGMA_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) total += sums_[warp][row][column];
      if (gridDim.z == 1) {
        finish(row, column, total);
      } else {
        sums_[0][row][column] = total;
      }
    }
    if (gridDim.z > 1) add_cluster();
  }

  // The first block of a cluster adds the sums of all in order.
  __device__ void add_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    cluster.sync();
    if (blockIdx.z == 0) {
#pragma unroll 1
      for (int at = threadIdx.x; at < kM * kN; at += kThreads) {
        const int row = at / kN, column = at % kN;
        float total = sums_[0][row][column];
        for (int other = 1; other < static_cast<int>(gridDim.z); ++other) {
          total += *cluster.map_shared_rank(&sums_[0][row][column], other);
        }
        finish(row, column, total);
      }
    }
    cluster.sync();  // their shared memory is read until here
#endif
  }

  __device__ void finish(int row, int column, float total) const {
    const int n = blockIdx.x * kN + column;
    if (row0_ + row < p_.m && n < p_.n) finish_one(p_.output, row0_ + row, n, total);
  }

  const Params& p_;
  SharedStorage& sums_;
  int warp_, g_, q_, row0_, octet_;
  bool columns_;
  uint32_t raw_[kSteps][8][kWords];
  Quad accumulators_[4 * kWords][kMTiles];
};

template <typename Element, int kRow>
__global__ void __launch_bounds__(AwqGemm<Element, kRow>::kThreads, kAwqConfigs[kRow].blocks)
    awq_gemm_kernel(const __grid_constant__ AwqParams<Element> params) {
  extern __shared__ __align__(16) uint8_t shared_bytes[];
  using Gemm = AwqGemm<Element, kRow>;
  Gemm(params, *reinterpret_cast<typename Gemm::SharedStorage*>(shared_bytes)).run();
}

}  // namespace mixed_gemm
