// The convolutions: places of their arguments, and a checked call as plain data, with the result
// made in the memory format of the input. The problem points into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/conv.h"

namespace mixed_gemm::conv {

constexpr int kInput = 0, kConfig = 12;  // config: of _qconv2d_config
constexpr int kInt8Config = 14;          // of _qconv2d_int8_config

ConvProblem problem_of(Call& call);
ConvInt8Problem int8_problem_of(Call& call);

ImageStrides strides_of(const contract::View& images);

// q of pack_conv_weights as the [N, K] matrix of layout/conv_layout.h, contiguous, on the device of
// q; made of torch ops.
Tensor filter_matrix(const Call& call);

}  // namespace mixed_gemm::conv
