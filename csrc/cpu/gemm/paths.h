// The ways to run one GEMM on a kernel table. Tests call them directly to force any.
#pragma once
#include "core/parallel.h"
#include "cpu/cpu_kernels.h"
#include "problem/gemm.h"

namespace mixed_gemm::cpu {

enum class GemmPath { kFused, kDense, kTiles };

// The fastest way for problem's m, element, weight and pre_scale, by the thresholds of the tables.
GemmPath choose_path(const CpuKernels& kernels, const GemmProblem& problem);

// Decodes the weight in registers, once per 8 rows of A: for small M.
void gemm_fused(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for);

// Decodes panels of columns to words in cache, then multiplies: for large M.
void gemm_dense(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for);

// Does the same on the tile registers, for a table that has them.
void gemm_tiles(const CpuKernels& kernels, const GemmProblem& problem,
                const ParallelFor& parallel_for);

void dequantize_with(const CpuKernels& kernels, const GemmProblem& problem, ElementType out_element,
                     const ParallelFor& parallel_for);

}  // namespace mixed_gemm::cpu
