// Runs a checked scaled GEMM on the current device: copies what cp.async cannot read, workspace,
// launches.
#pragma once
#include "dispatch/cuda_runner.h"
#include "dispatch/scaled_select.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// problem.k may be 0; m and n are at least 1.
Status run_scaled(const ScaledCandidate& candidate, const ScaledMmProblem& problem,
                  const Allocate& allocate, void* stream);

}  // namespace mixed_gemm
