// One fpA_intB GEMM as plain data: what ops/ hands to cpu/ and dispatch/. No torch, no CUTLASS.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// D[m, n] = activation(sum_k a[m, k] * pre_scale[k] * w[n, k] + bias[n]). Every 16/32-bit float
// pointer has the element type `element`; null means absent.
struct GemmProblem {
  int64_t m = 0, n = 0, k = 0;
  ElementType element = ElementType::kFloat16;
  QuantScheme scheme;
  Activation activation = Activation::kIdentity;

  const void* a = nullptr;            // [m, k], element (i, j) at i * a_stride + j
  int64_t a_stride = 0;               // in elements
  const uint8_t* b_packed = nullptr;  // [round_up(n, 64), round_up(k, 64) * bits / 8], contiguous
  const void* scales = nullptr;       // [ceil(k / group_size), n], row stride scale_stride
  const void* zeros = nullptr;        // same shape and stride as scales
  int64_t scale_stride = 0;           // in elements
  const void* bias = nullptr;         // [n]
  const void* pre_scale = nullptr;    // [k]
  void* d = nullptr;                  // [m, n], contiguous
};

inline int64_t num_groups(const GemmProblem& p) { return ceil_div(p.k, p.scheme.group_size); }

}  // namespace mixed_gemm
