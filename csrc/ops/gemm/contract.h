// fpA_intB_gemm: places of its arguments, and a checked call as plain data. No torch, because the
// library of gradients (ops/autograd) reads the places, too.
#pragma once
#include "problem/gemm.h"

namespace mixed_gemm {

class Call;

namespace gemm {

enum Place : int {
  kA,
  kPacked,
  kScales,
  kZeros,
  kBias,
  kPreScale,
  kBits,
  kGroupSize,
  kZeroMode,
  kActivation,
  kConfig,  // of fpA_intB_gemm_config
  kArguments = kConfig,
};

// The result is made; the problem points into tensors that the call owns.
GemmProblem problem_of(Call& call);

// Refuses a configuration by another name than that of this CPU's kernels.
void require_cpu_config(const Call& call, int at);

}  // namespace gemm
}  // namespace mixed_gemm
