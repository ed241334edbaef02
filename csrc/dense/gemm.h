// The library's dense GEMM on the dequantized weight: for float32, and for large M, where the
// tensor cores are the limit.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct DenseGemm {
  static const Family<GemmProblem> plan;
  static Status run(const Choice& choice, const GemmProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
