// The library's convolution on the dequantized filter.
#pragma once
#include "core/family.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct DenseConv {
  static const Family<ConvProblem> plan;
  static Run<ConvProblem> run;
};

}  // namespace mixed_gemm
