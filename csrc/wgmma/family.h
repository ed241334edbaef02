// The fpA_intB GEMM by wgmma (sm_90a): weights are converted to fragments of the instruction.
#pragma once
#include "core/family.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct Wgmma {
  static const Family<GemmProblem> plan;
  static Run<GemmProblem> run;
};

}  // namespace mixed_gemm
