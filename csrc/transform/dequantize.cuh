// Dequantizes a packed weight to a dense [n, k], in fp32 and rounded once. Bandwidth-bound, so the
// stores decide: a thread writes 16 bytes, 8 consecutive k of one column, and neighbouring threads
// write the neighbouring 16 bytes. The threads of a block of 128 / bits elements all read the
// block's 16 bytes (one request) and take their pair out of each of its words.
#pragma once
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "cutlass/numeric_conversion.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"
#include "transform/args.h"

namespace mixed_gemm {

template <typename Out, typename Scale>
struct DequantizeParams {
  const uint4* b_packed;
  const Scale* scales;
  const Scale* zeros;
  int64_t scale_stride;
  int n, k;
  int vectors_per_group;  // of 8 elements, in one column group of the layout
  int blocks_per_group;   // thread blocks that share a column group
  cutlass::FastDivmod k_period, group_size;
  int groups;
  ZeroMode zero_mode;
  Out* out;
  const float* factor;  // [n] or null, of floats
};

constexpr int kDequantizeThreads = 256;
constexpr int kDequantizeUnroll = 4;  // loads in flight per thread

// The number that a code stands for. Integers go without the slow I2F: 2^23 + code has an ulp of 1.
// The bits of a float, under the exponent of fp32, are it over a power of two. A book is looked up.
// A value of a book as a tree of constants: device code has no table of the host's.
template <typename Weight, uint32_t kFirst = 0, uint32_t kCount = 16>
__device__ float value_of_code(uint32_t code) {
  if constexpr (kCount == 1) {
    constexpr float kValue = Weight::value(kFirst);
    return kValue;
  } else {
    constexpr uint32_t kHalf = kCount / 2;
    return (code & kHalf) != 0 ? value_of_code<Weight, kFirst + kHalf, kHalf>(code)
                               : value_of_code<Weight, kFirst, kHalf>(code);
  }
}

template <typename Weight>
__device__ float code_to_float(uint32_t code) {
  if constexpr (Weight::kIsInteger) {
    return __uint_as_float(0x4b000000u | code) - (8388608.f + Weight::kBias);
  } else if constexpr (Weight::kHasBook) {
    return value_of_code<Weight>(code);
  } else {
    constexpr uint32_t kMagnitude = (1u << (Weight::kBits - 1)) - 1;
    const uint32_t magnitude = (code & kMagnitude) << (23 - Weight::kMantissaBits);
    const uint32_t sign = (code & ~kMagnitude) << (32 - Weight::kBits);
    return __uint_as_float(magnitude | sign) *
           __uint_as_float(static_cast<uint32_t>(254 - Weight::kExponentBias) << 23);
  }
}

template <typename Out, typename Scale, typename Weight>
__global__ void __launch_bounds__(kDequantizeThreads)
    dequantize_kernel(const DequantizeParams<Out, Scale> p) {
  using Layout = WeightLayout<Weight>;
  constexpr int kPairs = Layout::kPerWord / 2;  // vectors of 8 k in a block of 16 bytes
  const int column_group = blockIdx.x / p.blocks_per_group;
  const int first =
      blockIdx.x % p.blocks_per_group * kDequantizeThreads * kDequantizeUnroll + threadIdx.x;
  const uint4* source =
      p.b_packed + static_cast<int64_t>(column_group) * (p.vectors_per_group / kPairs);
  uint4 raw[kDequantizeUnroll];
#pragma unroll
  for (int u = 0; u < kDequantizeUnroll; ++u) {
    const int vector = first + u * kDequantizeThreads;
    if (vector < p.vectors_per_group) raw[u] = __ldcs(source + vector / kPairs);
  }
#pragma unroll
  for (int u = 0; u < kDequantizeUnroll; ++u) {
    const int vector = first + u * kDequantizeThreads;
    const int pair = vector % kPairs;
    const auto at =
        Layout::element_in_group(vector / kPairs * 4, pair);  // word 0: the first k of the pair
    const int n = column_group * Layout::kInterleave + static_cast<int>(at.n),
              k = static_cast<int>(at.k);
    if (vector >= p.vectors_per_group || n >= p.n || k >= p.k) continue;
    int period, k_in_period;
    p.k_period(period, k_in_period, k);
    const int row = min(p.group_size.div(k_in_period), p.groups - 1);  // padded channels: any row
    const int64_t group = row * p.scale_stride + n;
    const float scale = float(p.scales[group]);
    const float zero = p.zero_mode == ZeroMode::kNone ? 0.f : float(p.zeros[group]);
    const float subtrahend = p.zero_mode == ZeroMode::kSub ? zero : 0.f;
    const float addend = p.zero_mode == ZeroMode::kAdd ? zero : 0.f;
    float factor = 1.f;
    if constexpr (!Weight::kIsInteger) {
      if (p.factor != nullptr) factor = p.factor[n];
    }
    const uint32_t words[4] = {raw[u].x, raw[u].y, raw[u].z, raw[u].w};
    cutlass::Array<float, 8> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t stored = Places<Weight>::gather(words[i / 2], Layout::slot_of(pair, i % 2));
      values[i] = fmaf(code_to_float<Weight>(stored) - subtrahend, scale, addend);
      if constexpr (!Weight::kIsInteger) values[i] *= factor;
    }
    const auto rounded = cutlass::NumericArrayConverter<Out, float, 8>()(values);
    Out* out = p.out + static_cast<int64_t>(n) * p.k + k;
    if (p.k % 8 == 0) {
      *reinterpret_cast<cutlass::AlignedArray<Out, 8, 16>*>(out) =
          reinterpret_cast<const cutlass::AlignedArray<Out, 8, 16>&>(rounded);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (k + i < p.k) out[i] = rounded[i];
      }
    }
  }
}

}  // namespace mixed_gemm
