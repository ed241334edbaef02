// What the launchers of every family that multiplies packed weights have in common.
#pragma once
#include "grid/work.h"
#include "problem/gemm.h"

namespace mixed_gemm {

using GemmLaunch = int (*)(const GemmProblem& problem, const Work& work);  // returns a cudaError_t

}  // namespace mixed_gemm
