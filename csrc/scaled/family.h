// The int8 x int8 and fp8 x fp8 GEMM by mma.sync with a scaled epilogue.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct Scaled {
  static const Family<ScaledMmProblem> plan;
  static Status run(const Choice& choice, const ScaledMmProblem& problem,
                    const RunContext& context);
};

}  // namespace mixed_gemm
