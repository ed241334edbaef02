// The two ways to run one GEMM on a kernel table. Tests call them directly to force either.
#pragma once
#include "core/gemm_problem.h"
#include "core/parallel.h"
#include "cpu/cpu_kernels.h"

namespace mixed_gemm::cpu {

// Decodes the weight in registers, once per 8 rows of A: for small M.
void gemm_fused(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for);

// Dequantizes panels of columns to fp32 in cache, then multiplies: for large M.
void gemm_dense(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for);

void dequantize_with(const CpuKernels& kernels, const GemmProblem& problem, ElementType out_element,
                     const ParallelFor& parallel_for);

}  // namespace mixed_gemm::cpu
