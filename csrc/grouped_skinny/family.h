// The skinny kernels for rows of experts: a block takes a row block of an expert, by blockIdx.y.
#pragma once
#include "core/family.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

struct GroupedSkinny {
  static const Family<GroupedGemmProblem> plan;
  static Run<GroupedGemmProblem> run;
};

}  // namespace mixed_gemm
