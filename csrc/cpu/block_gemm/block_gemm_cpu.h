// The CPU backend of block_quant_gemm. ops/conv/cpu.cpp calls it.
#pragma once
#include "core/parallel.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

// Fills problem.d, for any m, n, k, strides and block sizes.
void block_gemm_cpu(const BlockGemmProblem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
