// The launchers of scaled GEMMs, and the second kernel of a parallel split by the type of the sums,
// compiled in scaled/instantiations next to the kernels of that type. All return a cudaError_t.
#pragma once
#include "grid/work.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// Rows of a and b start on 16 bytes.
using ScaledMmLaunch = int (*)(const ScaledMmProblem& problem, const Work& work);

int launch_int8_scaled_reduce(const ScaledMmProblem& problem, const Work& work);
// Present where MIXED_GEMM_WITH_FP8 is defined.
int launch_fp8_scaled_reduce(const ScaledMmProblem& problem, const Work& work);

}  // namespace mixed_gemm
