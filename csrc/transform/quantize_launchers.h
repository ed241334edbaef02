// The quantizers of activations as plain functions that return a cudaError_t, for m and k >= 1.
#pragma once
#include "core/device.h"
#include "problem/quantize.h"

namespace mixed_gemm {

int launch_quantize_per_token(const QuantizePerTokenProblem& problem, void* stream);
int launch_quantize_per_tensor(const QuantizePerTensorProblem& problem, void* stream);
// k may be 0.
int launch_quantize_float8(const QuantizeFloat8Problem& problem, const Pdl& pdl, void* stream);

}  // namespace mixed_gemm
