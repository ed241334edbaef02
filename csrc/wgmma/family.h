// fpA_intB GEMM by wgmma (sm_90a): weights are converted into the fragments of the instruction.
#pragma once
#include "core/family.h"
#include "core/status.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct Wgmma {
  static const Family<GemmProblem> plan;
  static Status run(const Choice& choice, const GemmProblem& problem, const RunContext& context);
};

}  // namespace mixed_gemm
