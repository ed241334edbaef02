// The compiled AWQ kernels as one plain function.
#pragma once
#include "awq/config.h"
#include "problem/awq.h"

namespace mixed_gemm {

// The words of the chosen row must divide n / 8 and the addresses of qweight and qzeros. a, scales
// and d are 16-bit floats; rows of a and scales start on 16 bytes, no further from each other than
// an int counts; k is a multiple of 8. Returns a cudaError_t.
int launch_awq_gemm(const AwqProblem& problem, const AwqChoice& choice, void* stream);

}  // namespace mixed_gemm
