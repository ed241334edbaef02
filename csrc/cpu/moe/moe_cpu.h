// The CPU backend of the ops around the experts of a mixture.
#pragma once
#include "core/parallel.h"
#include "problem/gated_activation.h"
#include "problem/moe.h"

namespace mixed_gemm {

// Ids are experts, or any number that is none. Positions are rows, or any number that is none.
void moe_permute_cpu(const MoePermuteProblem& problem, const ParallelFor& parallel_for);
void moe_combine_cpu(const MoeCombineProblem& problem, const ParallelFor& parallel_for);
void gated_activation_cpu(const GatedActivationProblem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
