// The products of dense/gemm.h by torch: dequantize the weight, multiply with its dense GEMM,
// finish bias and activation in fp32.
#pragma once
#include "core/status.h"
#include "grid/device_query.h"
#include "ops/torch_stable.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// out [m, n] = a [m, k] @ b [k, n] with the library's dense GEMM.
void dense_mm(const Tensor& a, const Tensor& b, Tensor& out);

// Writes w [problem.n, problem.k] to `out`.
Status dequantize_cuda(const GemmProblem& problem, ElementType out_type, void* out, void* stream);

// problem.d = activation(sums + bias), sums fp32 [m, n] or null for zeros.
Status finish_dense(const GemmProblem& problem, const float* sums, int slices, void* stream);

// a: the activations as a tensor [..., k]; d: the output.
Status run_dequantize_dense(const GemmProblem& problem, const Tensor& a,
                            const std::optional<Tensor>& pre_scale, Tensor& d, void* stream);

}  // namespace mixed_gemm
