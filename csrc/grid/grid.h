// The kernels beside a GEMM whose blocks share out K: plain data and plain functions, which return
// a cudaError_t and never synchronise.
#pragma once
#include <cstdint>

#include "core/device.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

// flags[i] = 0 for i < count: the semaphores of stream-K.
struct ZeroFlagsArgs {
  int* flags = nullptr;
  int count = 0;
  Pdl pdl;
  void* stream = nullptr;
};

int launch_zero_flags(const ZeroFlagsArgs& args);

// The factors that multiply the reduced sums of columns: scales of the output's type, or fp32
// factors. At most one is not null.
struct ReducedColumns {
  const void* scales = nullptr;   // [n]
  const float* factor = nullptr;  // [n]
};

// The output of a GEMM whose partial sums are in memory, to be reduced.
struct ReducedOutput {
  ElementType element = ElementType::kFloat16;
  int64_t m = 0, n = 0;
  ReducedColumns columns;
  const void* bias = nullptr;  // [n] or null
  Activation activation = Activation::kIdentity;
  void* d = nullptr;  // [m, n], contiguous
};

// d[r, c] = activation(column[c] * sum_s partials[s][r][c] + bias[c]), slices added in
// order.
struct ReduceArgs {
  ReducedOutput output;
  const float* partials = nullptr;  // [slices, m, partial_stride]
  int64_t partial_stride = 0;
  int slices = 1;
  Pdl pdl;
  void* stream = nullptr;
};
int launch_reduce_partials(const ReduceArgs& args);

}  // namespace mixed_gemm
