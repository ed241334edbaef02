// What the launchers of every family that multiplies packed weights have in common.
#pragma once
#include "grid/work.h"
#include "problem/gemm.h"

namespace mixed_gemm {

using GemmLaunch = int (*)(const GemmProblem& problem, const Work& work);  // returns a cudaError_t

// Where the launchers of a type stand in a table of fp16 and bf16 activations, 4 and 8 bits each.
inline int launcher_row(ElementType element, int bits) {
  return 2 * static_cast<int>(element) + (bits == 8);
}

}  // namespace mixed_gemm
