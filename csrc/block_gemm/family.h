// The GEMM whose activations are rounded to int8 on line, per row and block of K.
#pragma once
#include <string>

#include "core/family.h"
#include "core/status.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

struct BlockGemm {
  static const Family<BlockGemmProblem> plan;
  static Status run(const Choice& choice, const BlockGemmProblem& problem,
                    const RunContext& context);
};

// Reason why the problem has more parts than the kernels can count, or empty.
std::string why_not_block_counts(const BlockGemmProblem& problem);

}  // namespace mixed_gemm
