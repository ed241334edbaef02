// The library's convolution on the dequantized filter.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct DenseConv {
  static const Family<ConvProblem> plan;
  static Status run(const Choice& choice, const ConvProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
