// AutoAWQ tensors on the CPU, as they lie in the checkpoint: slices of columns are repacked into a
// scratch and go through gemm_cpu, which owns the arithmetic.
#pragma once
#include "core/parallel.h"
#include "problem/awq.h"

namespace mixed_gemm {

void gemm_awq_cpu(const AwqProblem& problem, const ParallelFor& parallel_for);

// Writes w [k, n] to problem.d, rounded once to problem.element. a is ignored.
void dequantize_awq_cpu(const AwqProblem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
