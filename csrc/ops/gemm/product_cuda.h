// The product of a packed weight on a GPU, for every op that has one.
#pragma once
#include "ops/call.h"
#include "problem/gemm.h"

namespace mixed_gemm::gemm {

// The arguments that the dense way reads as tensors.
struct OperandPlaces {
  int a, pre_scale;
};
// The configuration that a call names; an empty name is refused.
std::string named_config(Call& call, int at);

// Runs the problem of a checked call into its result. config empty: dispatch/select.h chooses.
void run_product(Call& call, const GemmProblem& p, const OperandPlaces& at,
                 const std::string& config);

}  // namespace mixed_gemm::gemm
