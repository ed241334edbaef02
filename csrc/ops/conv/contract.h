// The convolutions: places of their arguments, and a checked call as plain data, with the result
// made. The problem points into tensors that the call owns.
#pragma once
#include "ops/contracts.h"
#include "ops/conv/images.h"

namespace mixed_gemm::conv {

constexpr int kConfig = 12;      // of _qconv2d_config
constexpr int kInt8Config = 14;  // of _qconv2d_int8_config

ConvProblem problem_of(Call& call);
ConvInt8Problem int8_problem_of(Call& call);

}  // namespace mixed_gemm::conv
