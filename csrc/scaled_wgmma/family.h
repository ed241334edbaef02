// The int8 x int8 and float8 x float8 GEMM by wgmma (sm_90a) with a scaled epilogue.
#pragma once
#include "core/family.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

struct ScaledWgmma {
  static const Family<ScaledMmProblem> plan;
  static Run<ScaledMmProblem> run;
};

}  // namespace mixed_gemm
