// The int8 x int8 and fp8 x fp8 GEMM with a scaled epilogue for few rows: weights go straight into
// registers.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct ScaledSkinny {
  static const Family<ScaledMmProblem> plan;
  static Status run(const Choice& choice, const ScaledMmProblem& problem,
                    const RunContext& context);
};

}  // namespace mixed_gemm
