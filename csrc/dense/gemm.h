// The library's dense GEMM on the dequantized weight: for float32, and for large M, where the
// tensor cores are the limit.
#pragma once
#include "core/family.h"
#include "problem/gemm.h"

namespace mixed_gemm {

struct DenseGemm {
  static const Family<GemmProblem> plan;
  static Run<GemmProblem> run;
};

}  // namespace mixed_gemm
