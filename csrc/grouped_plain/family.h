// A kernel without tensor cores for rows of experts: any dtype, any weight, any size. It runs what
// no other family does: float32, books of values, no K.
#pragma once
#include "core/family.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

struct GroupedPlain {
  static const Family<GroupedGemmProblem> plan;
  static Run<GroupedGemmProblem> run;
};

}  // namespace mixed_gemm
