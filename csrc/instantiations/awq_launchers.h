// The compiled AWQ kernels as one plain function.
#pragma once
#include "awq/awq_config.h"
#include "core/awq_problem.h"

namespace mixed_gemm {

// row: of kAwqConfigs; its words must divide n / 8. a, scales and d are 16-bit floats; rows of a
// start on 16 bytes, k is a multiple of 8, qweight, qzeros and scales start on 16 bytes. Returns a
// cudaError_t.
int launch_awq_gemm(const AwqProblem& problem, int row, void* stream);

}  // namespace mixed_gemm
