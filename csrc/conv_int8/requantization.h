// Constants of an output channel of an int8 convolution (formula: problem/conv.h).
#pragma once
#include <cstdint>

namespace mixed_gemm {

struct Requantization {
  int32_t zero_sum;  // input_zero_point * sum of weights
  float multiplier, offset;
};

}  // namespace mixed_gemm
