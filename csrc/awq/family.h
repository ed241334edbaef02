// The GEMM of few rows straight on AutoAWQ tensors. One rule says which kernel runs (config.h), so
// there is nothing to rank; more rows, and sizes that kernels cannot count, go to the library's
// dense GEMM.
#pragma once
#include "core/status.h"
#include "problem/awq.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct Awq {
  // Whether the kernels take the problem.
  static bool takes(const AwqProblem& problem);
  // problem.scales starts on 16 bytes.
  static Status run(const AwqProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
