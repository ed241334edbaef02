// One product with an AutoAWQ weight as plain data: what ops/ hands to cpu/ and dispatch/.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// D[m, n] = sum_k a[m, k] * w[k, n] with w[k, n] = (code - zero) * scale, code and zero in 0..15.
// a, scales and d have the element type `element`.
struct AwqProblem {
  int64_t m = 0, n = 0, k = 0;  // n is a multiple of 8, k of group_size
  int64_t group_size = 0;
  ElementType element = ElementType::kFloat16;

  const void* a = nullptr;            // [m, k], element (i, j) at i * a_stride + j
  int64_t a_stride = 0;               // in elements
  const uint32_t* qweight = nullptr;  // [k, n / 8], see layout/checkpoint_layout.h
  const uint32_t* qzeros = nullptr;   // [k / group_size, n / 8]
  const void* scales = nullptr;       // [k / group_size, n]
  void* d = nullptr;                  // [m, n] contiguous; the weight [k, n] where w is asked for
};

}  // namespace mixed_gemm
