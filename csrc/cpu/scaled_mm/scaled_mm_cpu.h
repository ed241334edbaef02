// The CPU backend of scaled_mm and of the quantizers. ops/gemm/cpu.cpp calls it.
#pragma once
#include "core/parallel.h"
#include "problem/quantize.h"
#include "problem/scaled_mm.h"
#include "problem/scaled_mm_dynamic.h"

namespace mixed_gemm {

// Fills problem.d, for any m, n, k, strides and scales.
void scaled_mm_cpu(const ScaledMmProblem& problem, const ParallelFor& parallel_for);

// Fills product.d and needs no scratch from the caller.
void scaled_mm_dynamic_cpu(const ScaledMmDynamicProblem& problem, const ParallelFor& parallel_for);

void quantize_per_token_cpu(const QuantizePerTokenProblem& problem,
                            const ParallelFor& parallel_for);
void quantize_per_tensor_cpu(const QuantizePerTensorProblem& problem,
                             const ParallelFor& parallel_for);
void quantize_float8_cpu(const QuantizeFloat8Problem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
