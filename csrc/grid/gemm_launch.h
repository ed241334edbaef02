// The type of a launcher in every family that multiplies packed weights.
#pragma once
#include "grid/work.h"
#include "problem/gemm.h"

namespace mixed_gemm {

using GemmLaunch = int (*)(const GemmProblem& problem, const Work& work);  // returns a cudaError_t

}  // namespace mixed_gemm
