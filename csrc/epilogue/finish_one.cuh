// The last arithmetic of a GEMM on one output, as finish_output.cuh does it on eight: fp32 sum ->
// channel scale -> bias -> activation -> one rounding -> store. The skinny kernels end here.
#pragma once
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

template <typename Element>
__device__ void finish_one(const OutputParams<Element>& p, int64_t row, int column, float sum) {
  const float scale = p.channel_scale ? float(p.channel_scale[column]) : 1.f;
  const float bias = p.bias ? float(p.bias[column]) : 0.f;
  p.d[row * p.n + column] = Element(activate(p.activation, fmaf(sum, scale, bias)));
}

}  // namespace mixed_gemm
