// Dequantizes AutoAWQ tensors to a dense [k, n], in fp32 and rounded once. A thread turns one word
// into 8 columns of one row, 16 bytes of halves; a warp covers 256 columns.
#pragma once
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "cutlass/numeric_conversion.h"
#include "layout/checkpoint_layout.h"

namespace mixed_gemm {

constexpr int kAwqDequantizeWords = 32, kAwqDequantizeRows = 8;  // of a thread block

template <typename Element>
struct AwqDequantizeParams {
  const uint32_t* qweight;
  const uint32_t* qzeros;
  const Element* scales;
  int row_words;  // n / 8
  int k;
  cutlass::FastDivmod group_size;
  Element* out;
};

template <typename Element>
__global__ void awq_dequantize_kernel(const AwqDequantizeParams<Element> p) {
  constexpr int kPerWord = AwqLayout::kPerWord;
  using Octet = cutlass::AlignedArray<Element, kPerWord, 16>;
  const int word = blockIdx.x * kAwqDequantizeWords + threadIdx.x;
  if (word >= p.row_words) return;
  for (int row = blockIdx.y * kAwqDequantizeRows + threadIdx.y; row < p.k;
       row += gridDim.y * kAwqDequantizeRows) {
    const int64_t group = static_cast<int64_t>(p.group_size.div(row)) * p.row_words + word;
    const int64_t at = static_cast<int64_t>(row) * p.row_words + word;
    const uint32_t codes = p.qweight[at], zeros = p.qzeros[group];
    const Octet scales = reinterpret_cast<const Octet*>(p.scales)[group];
    cutlass::Array<float, kPerWord> values;
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      const int difference = AwqLayout::code(codes, i) - AwqLayout::code(zeros, i);
      values[i] = static_cast<float>(difference) * static_cast<float>(scales[i]);
    }
    const auto rounded = cutlass::NumericArrayConverter<Element, float, kPerWord>()(values);
    reinterpret_cast<Octet*>(p.out)[at] = reinterpret_cast<const Octet&>(rounded);
  }
}

}  // namespace mixed_gemm
