// scaled_mm of float activations that are rounded to int8 on the way, as plain data. No torch, no
// CUTLASS.
#pragma once
#include "problem/quantize.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// quantize_per_token, then scaled_mm of its results: the same numbers bit for bit, also in rows
// with a NaN or an infinity. Rows have a zero point where product.azp_adj is given, which then
// holds the sums of the columns of b.
struct ScaledMmDynamicProblem {
  // m, k, a: the activations. q, scale and azp: scratch of the backend's own, null until it says
  // where.
  QuantizePerTokenProblem rows;
  // b, scale_b, azp_adj, bias and d; m, n, k. a, scale_a and azp: what `rows` wrote.
  ScaledMmProblem product;

  bool symmetric() const { return product.azp_adj == nullptr; }
};

}  // namespace mixed_gemm
