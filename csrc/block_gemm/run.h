// The part of block_quant_gemm that rounds the activations, for tests, which compare it bit for bit
// with the CPU.
#pragma once
#include "block_gemm/args.h"
#include "core/status.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

// Bytes of a row of rounded activations.
int64_t block_row_stride(const BlockGemmProblem& problem);

// qa: [m, bytes of block_row_stride()], rows: [blocks, m].
Status quantize_blocks(const BlockGemmProblem& problem, int8_t* qa, RowScale* rows, void* stream);

}  // namespace mixed_gemm
