// A convolution that gathers nothing: the fpA_intB GEMM of pixels and filter, by whichever family
// is the fastest for that.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct Pointwise {
  static const Family<ConvProblem> plan;
  static Status run(const Choice& choice, const ConvProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
