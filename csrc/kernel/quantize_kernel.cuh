// Activations to int8 by the formula of core/quantize_problem.h, one read and one write: a block
// takes a row and keeps it in registers between choosing the scale and rounding.
#pragma once
#include "core/quantize_problem.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace mixed_gemm {

constexpr int kQuantizeVector = 8;   // elements of a row that a thread takes at once
constexpr int kQuantizeVectors = 4;  // of them kept in registers; longer rows are read twice

template <typename Element>
struct QuantizeVector {
  float values[kQuantizeVector];

  // k_left: elements that exist; the others are 0.
  __device__ void load(const Element* from, int64_t k_left, bool aligned) {
    if (aligned && k_left >= kQuantizeVector) {
      Element elements[kQuantizeVector];
      constexpr int kQuads = kQuantizeVector * sizeof(Element) / sizeof(uint4);
#pragma unroll
      for (int i = 0; i < kQuads; ++i)
        reinterpret_cast<uint4*>(elements)[i] = reinterpret_cast<const uint4*>(from)[i];
#pragma unroll
      for (int i = 0; i < kQuantizeVector; ++i) values[i] = float(elements[i]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kQuantizeVector; ++i) values[i] = i < k_left ? float(from[i]) : 0.f;
  }
};

// clamp(round(a * inverse) + azp, -128, 127), NaN as 0. Up to |azp| = 2^20 the bounds are exact in
// fp32, so clamping first needs no wider integers.
__device__ inline int8_t quantize_one(float a, float inverse, int32_t azp) {
  float x = a * inverse;
  x = x != x ? 0.f : x;
  const float low = static_cast<float>(-128 - azp), high = static_cast<float>(127 - azp);
  return static_cast<int8_t>(__float2int_rn(fminf(fmaxf(x, low), high)) + azp);
}

__device__ inline int8_t quantize_one_wide(float a, float inverse, int64_t azp) {
  float x = a * inverse;
  x = x != x ? 0.f : x;
  const float low = static_cast<float>(-128 - azp), high = static_cast<float>(127 - azp);
  const int64_t q = static_cast<int64_t>(rintf(fminf(fmaxf(x, low), high))) + azp;
  return static_cast<int8_t>(q < -128 ? -128 : q > 127 ? 127 : q);
}

// aligned: q starts on 8 bytes here.
template <bool kSmallAzp, typename Element>
__device__ void store_quantized(const QuantizeVector<Element>& vector, float inverse, int32_t azp,
                                int8_t* q, int64_t k_left, bool aligned) {
  alignas(8) int8_t quantized[kQuantizeVector];
#pragma unroll
  for (int i = 0; i < kQuantizeVector; ++i) {
    quantized[i] = kSmallAzp ? quantize_one(vector.values[i], inverse, azp)
                             : quantize_one_wide(vector.values[i], inverse, azp);
  }
  if (aligned && k_left >= kQuantizeVector) {
    *reinterpret_cast<uint2*>(q) = *reinterpret_cast<const uint2*>(quantized);
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuantizeVector; ++i) {
    if (i < k_left) q[i] = quantized[i];
  }
}

struct RowRange {
  float low = 0.f, high = 0.f;  // of the row and 0
  int nan = 0;
};

// The range of a whole block; every thread gets it.
__device__ inline RowRange reduce_range(RowRange range) {
  __shared__ float lows[32], highs[32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    range.low = fminf(range.low, __shfl_xor_sync(0xffffffff, range.low, distance));
    range.high = fmaxf(range.high, __shfl_xor_sync(0xffffffff, range.high, distance));
  }
  const int warps = blockDim.x / 32;
  if (threadIdx.x % 32 == 0) {
    lows[threadIdx.x / 32] = range.low;
    highs[threadIdx.x / 32] = range.high;
  }
  range.nan = __syncthreads_or(range.nan);
  for (int i = 0; i < warps; ++i) {
    range.low = fminf(range.low, lows[i]);
    range.high = fmaxf(range.high, highs[i]);
  }
  return range;
}

constexpr int kMaxQuantizeThreads = 512;  // 128 registers each

template <typename Element>
__global__ void __launch_bounds__(kMaxQuantizeThreads)
    quantize_per_token_kernel(const QuantizePerTokenProblem p, bool aligned_a, bool aligned_q) {
  const int64_t row = blockIdx.x;
  const auto* a = static_cast<const Element*>(p.a) + row * p.a_stride;
  int8_t* q = p.q + row * p.k;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kQuantizeVector;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kQuantizeVector;

  QuantizeVector<Element> kept[kQuantizeVectors];
  RowRange range;
  const auto include = [&](const QuantizeVector<Element>& vector) {
#pragma unroll
    for (int i = 0; i < kQuantizeVector; ++i) {
      range.low = fminf(range.low, vector.values[i]);
      range.high = fmaxf(range.high, vector.values[i]);
      range.nan |= vector.values[i] != vector.values[i];
    }
  };
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int64_t k = first + i * step;
    kept[i].load(a + k, p.k - k, aligned_a);
    include(kept[i]);
  }
  for (int64_t k = first + kQuantizeVectors * step; k < p.k; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, p.k - k, aligned_a);
    include(vector);
  }
  range = reduce_range(range);

  const bool symmetric = p.azp == nullptr;
  float scale = symmetric ? fmaxf(fmaxf(-range.low, range.high) / 127.f, kMinScale)
                          : fmaxf(range.high / 255.f - range.low / 255.f, kMinScale);
  if (range.nan) scale = __int_as_float(0x7fc00000);
  const bool finite = fabsf(scale) < __int_as_float(0x7f800000);
  const float inverse = finite ? 1.f / scale : 0.f;
  int32_t azp = 0;
  if (!symmetric && finite) {
    azp = static_cast<int32_t>(fminf(fmaxf(-128.f - rintf(range.low * inverse), -128.f), 127.f));
  }
  if (threadIdx.x == 0) {
    p.scale[row] = scale;
    if (!symmetric) p.azp[row] = azp;
  }
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int64_t k = first + i * step;
    if (k < p.k) store_quantized<true>(kept[i], inverse, azp, q + k, p.k - k, aligned_q);
  }
  for (int64_t k = first + kQuantizeVectors * step; k < p.k; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, p.k - k, aligned_a);
    store_quantized<true>(vector, inverse, azp, q + k, p.k - k, aligned_q);
  }
}

// Blocks of x share a row, rows are blockIdx.y + i * gridDim.y.
template <typename Element>
__global__ void quantize_per_tensor_kernel(const QuantizePerTensorProblem p, bool aligned_a,
                                           bool aligned_q) {
  const float inverse = 1.f / *p.scale;
  const int32_t azp = p.azp == nullptr ? 0 : *p.azp;
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kQuantizeVector;
  if (k >= p.k) return;
  for (int64_t row = blockIdx.y; row < p.m; row += gridDim.y) {
    QuantizeVector<Element> vector;
    vector.load(static_cast<const Element*>(p.a) + row * p.a_stride + k, p.k - k, aligned_a);
    store_quantized<false>(vector, inverse, azp, p.q + row * p.k + k, p.k - k, aligned_q);
  }
}

}  // namespace mixed_gemm
