// Runs a checked block_quant_gemm on the current device: workspace and two launches.
#pragma once
#include "dispatch/block_select.h"
#include "dispatch/cuda_runner.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

// problem.k may be 0; m and n are at least 1.
Status run_block_gemm(const BlockCandidate& candidate, const BlockGemmProblem& problem,
                      const Allocate& allocate, void* stream);

// The part of the first launch that rounds A. qa: [m, bytes of block_row_stride()], rows: [blocks,
// m]. For tests, which compare both bit for bit with the CPU.
int64_t block_row_stride(const BlockGemmProblem& problem);
Status quantize_blocks(const BlockGemmProblem& problem, int8_t* qa, RowScale* rows, void* stream);

}  // namespace mixed_gemm
