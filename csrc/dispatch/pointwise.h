// A convolution that gathers nothing: the fpA_intB GEMM of pixels and filter, by whichever family
// is the fastest for that.
#pragma once
#include "core/family.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct Pointwise {
  static const Family<ConvProblem> plan;
  static Run<ConvProblem> run;
};

}  // namespace mixed_gemm
