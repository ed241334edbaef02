// Gates rows by epilogue/gate.h: a thread takes some columns of gate and the same of up.
#pragma once
#include "epilogue/gate.h"
#include "grid/pdl.cuh"
#include "transform/element_vector.cuh"

namespace mixed_gemm {

struct GateRowsParams {
  GatedActivationProblem problem;
  bool aligned_a, aligned_d;  // gate, up and d lie on 16 bytes in every row
};

// Blocks of x share a row, rows are blockIdx.y + i * gridDim.y.
template <typename Element>
__global__ void gate_rows_kernel(const GateRowsParams params) {
  const GatedActivationProblem& p = params.problem;
  pdl_wait();
  pdl_launch_dependents();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kElementVector;
  if (at >= p.inner) return;
  const int64_t left = p.inner - at;
  for (int64_t row = blockIdx.y; row < p.m; row += gridDim.y) {
    const auto* from = static_cast<const Element*>(p.a) + row * p.a_stride + at;
    float gate[kElementVector], up[kElementVector];
    load_elements(from, left, params.aligned_a, gate);
    load_elements(from + p.inner, left, params.aligned_a, up);
#pragma unroll
    for (int i = 0; i < kElementVector; ++i) gate[i] = gated(p.gate, gate[i], up[i]);
    store_elements(gate, static_cast<Element*>(p.d) + row * p.inner + at, left, params.aligned_d);
  }
}

}  // namespace mixed_gemm
