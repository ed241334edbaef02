// THE list of the kinds of problems: X(Problem) for each. Code that is instantiated for all of them
// expands it; dispatch/families.h says which families run each.
#pragma once
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/gemm.h"
#include "problem/grouped_gemm.h"
#include "problem/scaled_mm.h"

#define MIXED_GEMM_PROBLEMS(X) \
  X(GemmProblem)               \
  X(GroupedGemmProblem)        \
  X(ScaledMmProblem)           \
  X(BlockGemmProblem)          \
  X(ConvProblem)               \
  X(ConvInt8Problem)
