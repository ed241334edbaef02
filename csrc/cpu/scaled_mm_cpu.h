// The CPU backend of scaled_mm and of the quantizers. ops/cpu_impl.cpp calls it.
#pragma once
#include "core/parallel.h"
#include "core/quantize_problem.h"
#include "core/scaled_mm_problem.h"

namespace mixed_gemm {

// Fills problem.d: any m, n, k, strides and scales.
void scaled_mm_cpu(const ScaledMmProblem& problem, const ParallelFor& parallel_for);

void quantize_per_token_cpu(const QuantizePerTokenProblem& problem,
                            const ParallelFor& parallel_for);
void quantize_per_tensor_cpu(const QuantizePerTensorProblem& problem,
                             const ParallelFor& parallel_for);

}  // namespace mixed_gemm
