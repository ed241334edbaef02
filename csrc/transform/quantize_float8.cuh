// Rounds activations to float8 e4m3 by the formula of problem/quantize.h, one read and one write: a
// team of threads takes a block of K of a row and keeps it in registers between choosing the scale
// and rounding. The GEMM behind it may be launched with PDL (grid/pdl.cuh).
#pragma once
#include <cuda_fp8.h>

#include "core/divisor.h"
#include "grid/pdl.cuh"
#include "transform/divide_for_float8.h"
#include "transform/quantize.cuh"

namespace mixed_gemm {

// Elements 4 half .. 4 half + 3, rounded.
template <typename Element>
__device__ uint32_t float8_word(const QuantizeVector<Element>& vector,
                                const DivideForFloat8& divide, int half) {
  float values[4], quotients[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = float(vector.elements[4 * half + i]);
  divide(values, quotients);
  const auto pair = [&](int i) -> uint32_t {
    return __nv_cvt_float2_to_fp8x2(make_float2(quotients[i], quotients[i + 1]), __NV_SATFINITE,
                                    __NV_E4M3);
  };
  return pair(0) | pair(2) << 16;
}

// aligned: q starts on 8 bytes here.
template <typename Element>
__device__ void store_float8(const QuantizeVector<Element>& vector, const DivideForFloat8& divide,
                             uint8_t* q, int64_t k_left, bool aligned) {
  const uint32_t words[2] = {float8_word(vector, divide, 0), float8_word(vector, divide, 1)};
  if (aligned && k_left >= kQuantizeVector) {
    *reinterpret_cast<uint2*>(q) = make_uint2(words[0], words[1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuantizeVector; ++i) {
    if (i < k_left) q[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
  }
}

struct QuantizeFloat8Params {
  QuantizeFloat8Problem problem;
  int64_t length;             // of a block of K, the longest
  Divisor blocks;             // of a row
  int lane_bits;              // a team that is no thread block: 1 << lane_bits lanes of a warp
  bool aligned_a, aligned_q;  // blocks of K start on 16 and on 8 bytes
};

constexpr int kFloat8TeamThreads = 256;  // of a thread block of teams

// kWhole: a team is a thread block, for blocks of any length; else lanes of a warp, for blocks of
// one vector a lane.
template <typename Element, bool kWhole>
__global__ void __launch_bounds__(kWhole ? kMaxQuantizeThreads : kFloat8TeamThreads)
    quantize_float8_kernel(const __grid_constant__ QuantizeFloat8Params params) {
  constexpr int kVectors = kWhole ? kQuantizeVectors : 1;
  const QuantizeFloat8Problem& p = params.problem;
  const int thread = static_cast<int>(threadIdx.x), grid_block = static_cast<int>(blockIdx.x);
  const int lanes = kWhole ? static_cast<int>(blockDim.x) : 1 << params.lane_bits;
  const int lane = kWhole ? thread : thread & (lanes - 1);
  const int team =
      kWhole ? grid_block : (grid_block * kFloat8TeamThreads + thread) >> params.lane_bits;
  const int row = params.blocks.quotient(team), block = team - row * params.blocks.divisor;
  const bool exists = row < p.m;  // the others go along with the shuffles
  const int64_t k0 = block * p.block_k;
  const int64_t count = exists ? min(params.length, p.k - k0) : 0;
  const auto* a = static_cast<const Element*>(p.a) + row * p.a_stride + k0;
  uint8_t* q = p.q + row * p.k + k0;
  const int first = lane * kQuantizeVector, step = lanes * kQuantizeVector;
  pdl_wait();
  pdl_launch_dependents();

  QuantizeVector<Element> kept[kVectors];
  LargestOf<Element> of_thread;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t k = first + i * step;
    kept[i].load(a + k, count - k, params.aligned_a);
    of_thread.include(kept[i]);
  }
  if constexpr (kWhole) {
    for (int64_t k = first + kVectors * step; k < count; k += step) {
      QuantizeVector<Element> vector;
      vector.load(a + k, count - k, params.aligned_a);
      of_thread.include(vector);
    }
  }
  uint32_t largest = of_thread.bits();
  if constexpr (kWhole) {
    largest = reduce_largest(largest);
  } else {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      largest = max(largest, __shfl_xor_sync(0xffffffff, largest, distance));
    }
  }

  float scale = __fdiv_rn(LargestOf<Element>::value(largest), kMaxFloat8);
  scale = scale < kMinScale ? kMinScale : scale;  // NaN stays
  if (lane == 0 && exists) p.scale[team] = scale;
  const DivideForFloat8 divide(scale);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int64_t k = first + i * step;
    if (k < count) store_float8(kept[i], divide, q + k, count - k, params.aligned_q);
  }
  if constexpr (kWhole) {
    for (int64_t k = first + kVectors * step; k < count; k += step) {
      QuantizeVector<Element> vector;
      vector.load(a + k, count - k, params.aligned_a);
      store_float8(vector, divide, q + k, count - k, params.aligned_q);
    }
  }
}

}  // namespace mixed_gemm
