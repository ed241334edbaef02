// The fpA_intB GEMM by mma.sync, tile by tile, weights and scales through a cp.async pipeline.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct Multistage {
  static const Family<GemmProblem> plan;
  static Status run(const Choice& choice, const GemmProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
