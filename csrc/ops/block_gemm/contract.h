// block_quant_gemm: places of its arguments, and a checked call as plain data. The problem points
// into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/block_gemm.h"

namespace mixed_gemm::block_gemm {

constexpr int kConfig = 8;  // of _block_quant_gemm_config

// The problem without bias, sums, activation and result: the arguments of _block_quantize.
BlockGemmProblem operands_of(Call& call);
BlockGemmProblem problem_of(Call& call);  // the result is made

}  // namespace mixed_gemm::block_gemm
