// scaled_mm, with zero points, with a configuration by name, and of float activations: places of
// their arguments, and a checked call as plain data, with the result made. The problem points into
// tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/scaled_mm_dynamic.h"

namespace mixed_gemm::scaled_mm {

// These come first in every op but the one of float activations, which has no scale_a.
enum : int { kA, kB, kScaleA, kScaleB };

// Where an op has what not every one of them has; -1: nowhere.
struct Places {
  int azp_adj, azp, bias, out_dtype, block_size;
};
constexpr Places kPlain{-1, -1, 4, 5, 6}, kWithAzp{4, 5, 6, 7, -1}, kForced{4, 5, 6, 7, 9};
constexpr int kConfig = 8;  // of _scaled_mm_config

ScaledMmProblem problem_of(Call& call, const Places& at);
ScaledMmDynamicProblem dynamic_problem_of(Call& call);

}  // namespace mixed_gemm::scaled_mm
