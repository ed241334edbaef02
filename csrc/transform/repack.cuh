// Repacks a checkpoint's weight on the GPU: the gather of layout/checkpoint_layout.h, one packed
// word per thread.
#pragma once
#include "layout/checkpoint_layout.h"

namespace mixed_gemm {

template <typename Source>
__global__ void repack_kernel(const Source weight, int64_t k_pad, int64_t words, uint32_t* packed) {
  const int64_t word = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (word < words) packed[word] = repacked_word(weight, word, k_pad);
}

}  // namespace mixed_gemm
