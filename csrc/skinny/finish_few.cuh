// The last arithmetic of a GEMM on one output or a few neighbours, as finish_output.cuh does it on
// eight: fp32 sum -> channel scale -> bias -> activation -> one rounding -> store. The skinny
// kernels end here.
#pragma once
#include "epilogue/activate_all.cuh"
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

// Runs the epilogue on kCount outputs. sums: used up.
template <int kCount, typename Element, typename Factor>
__device__ void finish_few(const OutputParams<Element, Factor>& p, int64_t row, int column,
                           float (&sums)[kCount]) {
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    const bool exists = column + i < p.n;
    const float scale = p.channel_scale && exists ? float(p.channel_scale[column + i]) : 1.f;
    const float bias = p.bias && exists ? float(p.bias[column + i]) : 0.f;
    sums[i] = fmaf(sums[i], scale, bias);
  }
  if (p.activation != Activation::kIdentity) activate_all<kCount>(p.activation, sums);
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kCount; ++i) {
    if (column + i < p.n) p.d[row * p.n + column + i] = Element(sums[i]);
  }
}

}  // namespace mixed_gemm
