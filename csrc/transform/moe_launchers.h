// The kernels around the experts of a mixture as plain functions that return a cudaError_t. None
// waits for the device, and none turns on the values of a tensor.
#pragma once
#include <algorithm>

#include "core/device.h"
#include "problem/gated_activation.h"
#include "problem/moe.h"

namespace mixed_gemm {

// Blocks that share out the choices while they are sorted.
inline int64_t sort_blocks(const MoePermuteProblem& problem) {
  constexpr int64_t kChoices = 4096,
                    kMostBlocks = 64;  // of a block; counts of all are read by each
  return std::clamp<int64_t>(problem.count() / kChoices, 1, kMostBlocks);
}

// counts: int32 [sort_blocks(), experts], workspace; not read where there is one block.
int launch_moe_permute(const MoePermuteProblem& problem, int32_t* counts, const Pdl& pdl,
                       void* stream);
// For tokens, rows and columns of 1 and more.
int launch_moe_combine(const MoeCombineProblem& problem, const Pdl& pdl, void* stream);
int launch_gated_activation(const GatedActivationProblem& problem, const Pdl& pdl, void* stream);

}  // namespace mixed_gemm
