// The GEMM whose activations are rounded to int8 on line, per row and block of K.
#pragma once
#include <string>

#include "core/family.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

struct BlockGemm {
  static const Family<BlockGemmProblem> plan;
  static Run<BlockGemmProblem> run;
};

// Reason why the problem has more parts than the kernels can count, or empty.
std::string why_not_block_counts(const BlockGemmProblem& problem);

}  // namespace mixed_gemm
