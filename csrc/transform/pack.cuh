// Pack and unpack on the GPU: the same gather over the layout map as layout/pack_weight.cpp, one
// packed word per thread.
#pragma once
#include "layout/code_places.h"
#include "layout/weight_layout.h"
#include "transform/args.h"

namespace mixed_gemm {

template <typename Weight>
__global__ void pack_kernel(const int8_t* q, int64_t n, int64_t k, int64_t k_pad, int64_t words,
                            uint32_t* packed) {
  using Layout = WeightLayout<Weight>;
  const int64_t word = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (word >= words) return;
  uint32_t bits = 0;
#pragma unroll
  for (int slot = 0; slot < Layout::kPerWord; ++slot) {
    const auto e = Layout::element(word, slot, k_pad);
    const int code = e.n < n && e.k < k ? q[e.n * k + e.k] + Weight::kBias : Weight::kZero;
    bits |= Places<Weight>::spread(static_cast<uint32_t>(code) & Layout::kMask, slot);
  }
  packed[word] = bits;
}

template <typename Weight>
__global__ void unpack_kernel(const uint32_t* packed, int64_t n, int64_t k, int64_t k_pad,
                              int64_t words, int8_t* q) {
  using Layout = WeightLayout<Weight>;
  const int64_t word = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (word >= words) return;
  const uint32_t bits = packed[word];
#pragma unroll
  for (int slot = 0; slot < Layout::kPerWord; ++slot) {
    const auto e = Layout::element(word, slot, k_pad);
    const int value = static_cast<int>(Places<Weight>::gather(bits, slot)) - Weight::kBias;
    if (e.n < n && e.k < k) q[e.n * k + e.k] = static_cast<int8_t>(value);
  }
}

}  // namespace mixed_gemm
