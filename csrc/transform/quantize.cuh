// Rounds activations to int8 by the formula of problem/quantize.h, one read and one write: a block
// takes a row and keeps it in registers between choosing the scale and rounding.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>
#include <type_traits>

#include "cutlass/bfloat16.h"
#include "cutlass/half.h"
#include "grid/pdl.cuh"
#include "problem/quantize.h"

namespace mixed_gemm {

constexpr int kQuantizeVector = 8;   // elements of a row that a thread takes at once
constexpr int kQuantizeVectors = 4;  // of them kept in registers; longer rows are read twice

// Elements of a row as they are stored: half the registers of floats, and 16-bit ones are compared
// in pairs.
template <typename Element>
struct QuantizeVector {
  alignas(16) Element elements[kQuantizeVector];

  // k_left: elements that exist; the others are 0.
  __device__ void load(const Element* from, int64_t k_left, bool aligned) {
    if (aligned && k_left >= kQuantizeVector) {
      constexpr int kQuads = kQuantizeVector * sizeof(Element) / sizeof(uint4);
#pragma unroll
      for (int i = 0; i < kQuads; ++i)
        reinterpret_cast<uint4*>(elements)[i] = reinterpret_cast<const uint4*>(from)[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < kQuantizeVector; ++i) elements[i] = i < k_left ? from[i] : Element(0.f);
  }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct RowRange {
  float low = 0.f, high = 0.f;
  int nan = 0;

  // (high - low) / 255, computed in halves, since the difference may overflow; NaN where both are
  // the same infinity.
  __device__ float step() const {
    const float half = __fsub_rn(__fmul_rn(high, 0.5f), __fmul_rn(low, 0.5f));
    return __fdiv_rn(half, 127.5f);
  }
};

// The least and the greatest element, two by two; a NaN stays. They begin as infinities.
template <typename Element>
struct RangeOf {
  using Pair =
      std::conditional_t<std::is_same_v<Element, cutlass::half_t>, __half2, __nv_bfloat162>;
  Pair low = both(kInfinity), high = both(-kInfinity);

  __device__ void include(const QuantizeVector<Element>& vector) {
    const auto* pairs = reinterpret_cast<const Pair*>(vector.elements);
#pragma unroll
    for (int i = 0; i < kQuantizeVector / 2; ++i) {
      low = __hmin2_nan(low, pairs[i]);
      high = __hmax2_nan(high, pairs[i]);
    }
  }
  __device__ RowRange range() const {
    const float lows[2] = {float(low.x), float(low.y)}, highs[2] = {float(high.x), float(high.y)};
    return {fminf(lows[0], lows[1]), fmaxf(highs[0], highs[1]),
            lows[0] != lows[0] || lows[1] != lows[1]};
  }

 private:
  static __device__ Pair both(float value) {
    const Element element(value);
    const uint32_t bits = 0x10001u * reinterpret_cast<const uint16_t&>(element);
    return reinterpret_cast<const Pair&>(bits);
  }
};
template <>
struct RangeOf<float> {
  RowRange found = {kInfinity, -kInfinity, 0};

  __device__ void include(const QuantizeVector<float>& vector) {
#pragma unroll
    for (const float value : vector.elements) {
      found.low = fminf(found.low, value);
      found.high = fmaxf(found.high, value);
      found.nan |= value != value;
    }
  }
  __device__ RowRange range() const { return found; }
};

// The largest magnitude, as bits without sign: in their order NaN is above infinity, so it stays.
template <typename Element>
struct LargestOf {
  uint32_t pairs = 0;  // of two 16-bit elements

  __device__ void include(const QuantizeVector<Element>& vector) {
    const auto* words = reinterpret_cast<const uint32_t*>(vector.elements);
#pragma unroll
    for (int i = 0; i < kQuantizeVector / 2; ++i) {
      pairs = __vmaxu2(pairs, words[i] & 0x7fff7fffu);
    }
  }
  __device__ uint32_t bits() const { return max(pairs & 0xffffu, pairs >> 16); }
  static __device__ float value(uint32_t bits) {
    return float(Element::bitcast(static_cast<uint16_t>(bits)));
  }
};
template <>
struct LargestOf<float> {
  uint32_t largest = 0;

  __device__ void include(const QuantizeVector<float>& vector) {
#pragma unroll
    for (const float value : vector.elements) {
      largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
    }
  }
  __device__ uint32_t bits() const { return largest; }
  static __device__ float value(uint32_t bits) { return __uint_as_float(bits); }
};

// Elements that do not exist must not widen the range.
template <typename Element>
__device__ void include(RangeOf<Element>& range, QuantizeVector<Element> vector, int k_left) {
  if (k_left <= 0) return;
#pragma unroll
  for (int i = 1; i < kQuantizeVector; ++i) {
    if (i >= k_left) vector.elements[i] = vector.elements[0];
  }
  range.include(vector);
}

// clamp(round(a * inverse) + azp, -128, 127), NaN as 0, for a scale and azp that suit the row: then
// round(a * inverse) is within +-kMaxTokenSteps or NaN, of which cvt makes 0.
struct RoundOwnScale {
  float inverse;
  int32_t azp;
  __device__ int32_t operator()(float a) const { return __float2int_rn(a * inverse) + azp; }
};

// Rounds with any positive scale: infinities saturate. The bounds are exact in fp32.
struct RoundAnyScale {
  float inverse, low, high;
  int32_t azp;
  __device__ RoundAnyScale(float inverse, int32_t any_azp) : inverse(inverse) {
    azp = max(-kMaxAzp, min(kMaxAzp, any_azp));
    low = static_cast<float>(-128 - azp);
    high = static_cast<float>(127 - azp);
  }
  __device__ int32_t operator()(float a) const {
    float x = a * inverse;
    x = x != x ? 0.f : x;
    return __float2int_rn(fminf(fmaxf(x, low), high)) + azp;
  }
};

// The low bytes of a word: x, y saturated to int8, then the low half of `rest`.
__device__ inline uint32_t pack_int8(int32_t x, int32_t y, uint32_t rest) {
  uint32_t packed;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(packed) : "r"(y), "r"(x), "r"(rest));
  return packed;
}

// Elements 4 half .. 4 half + 3, rounded.
template <typename Element, typename Round>
__device__ uint32_t quantized_word(const QuantizeVector<Element>& vector, const Round& round,
                                   int half) {
  const Element* of = vector.elements + 4 * half;
  const uint32_t upper = pack_int8(round(float(of[2])), round(float(of[3])), 0u);
  return pack_int8(round(float(of[0])), round(float(of[1])), upper);
}

// aligned: q starts on 8 bytes here.
template <typename Element, typename Round>
__device__ void store_quantized(const QuantizeVector<Element>& vector, const Round& round,
                                int8_t* q, int64_t k_left, bool aligned) {
  const uint32_t words[2] = {quantized_word(vector, round, 0), quantized_word(vector, round, 1)};
  if (aligned && k_left >= kQuantizeVector) {
    *reinterpret_cast<uint2*>(q) = make_uint2(words[0], words[1]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kQuantizeVector; ++i) {
    if (i < k_left) q[i] = static_cast<int8_t>(words[i / 4] >> (8 * (i % 4)));
  }
}

constexpr int kMaxQuantizeThreads = 512;  // 128 registers each

// Reduces the largest magnitude over a whole block; every thread gets it.
__device__ inline uint32_t reduce_largest(uint32_t largest) {
  __shared__ uint32_t of_warp[kMaxQuantizeThreads / 32];
  largest = __reduce_max_sync(0xffffffff, largest);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  const int warps = blockDim.x / 32;
  for (int i = 0; i < warps; ++i) largest = max(largest, of_warp[i]);
  return largest;
}

// Reduces the range over a whole block; every thread gets it.
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

// The formula of problem/quantize.h; azp stays 0 without zero points and where scale is not finite.
struct TokenScale {
  float scale, inverse = 0.f;
  int32_t azp = 0;

  // Without zero points the scale follows from the largest magnitude, which may be a NaN.
  __device__ explicit TokenScale(float largest) {
    scale = __fdiv_rn(largest, 127.f);
    scale = scale < kMinScale ? kMinScale : scale;  // a NaN stays
    if (scale < kInfinity) inverse = __fdiv_rn(1.f, scale);
  }

  __device__ explicit TokenScale(const RowRange& range) {
    const float largest = fmaxf(-range.low, range.high);
    scale = fmaxf(__fdiv_rn(largest, static_cast<float>(kMaxTokenSteps)), kMinScale);
    scale = fmaxf(range.step(), scale);  // of a NaN and a number, the number
    if (range.nan) scale = __int_as_float(0x7fc00000);
    if (!(scale < kInfinity)) return;
    inverse = __fdiv_rn(1.f, scale);
    const float low = rintf(range.low * inverse);
    azp = static_cast<int32_t>(-128.f - low);
  }
};

// The range of a row as a thread has seen it: the largest magnitude suffices without zero points,
// and is found in half the instructions.
template <typename Element, bool kSymmetric>
struct SeenOfRow {
  LargestOf<Element> found;

  // Elements that do not exist are 0.
  __device__ void add(const QuantizeVector<Element>& vector, int) { found.include(vector); }
  __device__ TokenScale scale(int64_t) const {
    return TokenScale(LargestOf<Element>::value(reduce_largest(found.bits())));
  }
};
template <typename Element>
struct SeenOfRow<Element, false> {
  RangeOf<Element> found;

  __device__ void add(const QuantizeVector<Element>& vector, int k_left) {
    include(found, vector, k_left);
  }
  __device__ TokenScale scale(int64_t k) const {
    return TokenScale(k == 0 ? RowRange{} : reduce_range(found.range()));
  }
};

template <typename Element, bool kSymmetric>
__global__ void __launch_bounds__(kMaxQuantizeThreads)
    quantize_per_token_kernel(const QuantizePerTokenProblem p, bool aligned_a, bool aligned_q) {
  pdl_launch_dependents();  // the product, which waits before it reads what is written here
  const int64_t row = blockIdx.x;
  const auto* a = static_cast<const Element*>(p.a) + row * p.a_stride;
  int8_t* q = p.q + row * p.k;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kQuantizeVector;
  const int64_t first = static_cast<int64_t>(threadIdx.x) * kQuantizeVector;
  const auto left = [&](int64_t k) {  // elements from k on, as far as they fit into a vector
    return static_cast<int>(min(p.k - k, int64_t{kQuantizeVector}));
  };

  QuantizeVector<Element> kept[kQuantizeVectors];
  SeenOfRow<Element, kSymmetric> seen;
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int64_t k = first + i * step;
    kept[i].load(a + k, p.k - k, aligned_a);
    seen.add(kept[i], left(k));
  }
  for (int64_t k = first + kQuantizeVectors * step; k < p.k; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, p.k - k, aligned_a);
    seen.add(vector, left(k));
  }

  const TokenScale chosen = seen.scale(p.k);
  const RoundOwnScale round{chosen.inverse, chosen.azp};
  if (threadIdx.x == 0) {
    p.scale[row] = chosen.scale;
    if constexpr (!kSymmetric) p.azp[row] = chosen.azp;
  }
#pragma unroll
  for (int i = 0; i < kQuantizeVectors; ++i) {
    const int64_t k = first + i * step;
    if (k < p.k) store_quantized(kept[i], round, q + k, p.k - k, aligned_q);
  }
  for (int64_t k = first + kQuantizeVectors * step; k < p.k; k += step) {
    QuantizeVector<Element> vector;
    vector.load(a + k, p.k - k, aligned_a);
    store_quantized(vector, round, q + k, p.k - k, aligned_q);
  }
}

// Blocks of x share a row, rows are blockIdx.y + i * gridDim.y.
template <typename Element>
__global__ void quantize_per_tensor_kernel(const QuantizePerTensorProblem p, bool aligned_a,
                                           bool aligned_q) {
  const RoundAnyScale round(1.f / *p.scale, p.azp == nullptr ? 0 : *p.azp);
  const int64_t k = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kQuantizeVector;
  if (k >= p.k) return;
  for (int64_t row = blockIdx.y; row < p.m; row += gridDim.y) {
    QuantizeVector<Element> vector;
    vector.load(static_cast<const Element*>(p.a) + row * p.a_stride + k, p.k - k, aligned_a);
    store_quantized(vector, round, p.q + row * p.k + k, p.k - k, aligned_q);
  }
}

}  // namespace mixed_gemm
