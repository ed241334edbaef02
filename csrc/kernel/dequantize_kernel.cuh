// Packed weight -> dense [n, k]. A thread takes one 16-byte block (32 or 16 consecutive k of a
// column), computes in fp32 and rounds once; the words of the block come back in order of k, so
// stores are 16 bytes and a column's run is coalesced.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "kernel/auxiliary_args.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {

template <typename Out, typename Scale>
struct DequantizeParams {
  const uint4* b_packed;
  const Scale* scales;
  const Scale* zeros;
  int64_t scale_stride, n, k, k_pad, blocks;
  int64_t group_size;
  ZeroMode zero_mode;
  Out* out;
};

template <typename Out, typename Scale, int kBits>
__global__ void dequantize_kernel(const DequantizeParams<Out, Scale> p) {
  using Layout = WeightLayout<kBits>;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block >= p.blocks) return;
  const auto first =
      Layout::element(4 * block, 0, p.k_pad);  // word 0, pair 0: the smallest k of the block
  if (first.n >= p.n) return;
  const uint4 raw = p.b_packed[block];
  const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
  Out* out = p.out + first.n * p.k;

#pragma unroll
  for (int pair = 0; pair < Layout::kPerWord / 2; ++pair) {
    const int64_t k = first.k + 8 * pair;
    if (k >= p.k) break;
    const int64_t at = k / p.group_size * p.scale_stride + first.n;
    const float scale = float(p.scales[at]);
    const float zero = p.zero_mode == ZeroMode::kNone ? 0.f : float(p.zeros[at]);
    const float subtrahend = p.zero_mode == ZeroMode::kSub ? zero : 0.f;
    const float addend = p.zero_mode == ZeroMode::kAdd ? zero : 0.f;
    cutlass::Array<float, 8> values;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t stored =
          (words[i / 2] >> (kBits * Layout::slot_of(pair, i % 2))) & Layout::kMask;
      values[i] = fmaf(static_cast<float>(static_cast<int>(stored) - Layout::kBias) - subtrahend,
                       scale, addend);
    }
    const auto rounded = cutlass::NumericArrayConverter<Out, float, 8>()(values);
    if (p.k % 8 == 0) {
      *reinterpret_cast<cutlass::AlignedArray<Out, 8, 16>*>(out + k) =
          reinterpret_cast<const cutlass::AlignedArray<Out, 8, 16>&>(rounded);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (k + i < p.k) out[k + i] = rounded[i];
      }
    }
  }
}

}  // namespace mixed_gemm
