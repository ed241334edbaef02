// The ops of packed floats: the product, packing, unpacking, dequantizing; a checked call as plain
// data, with the result made.
#pragma once
#include "ops/call.h"
#include "ops/weights/contract.h"

namespace mixed_gemm::float_weights {

// Of fpA_fpB_gemm.
enum Place : int {
  kA,
  kPacked,
  kScales,
  kFactor,
  kBias,
  kPreScale,
  kBits,
  kGroupSize,
  kActivation,
  kConfig,  // of fpA_fpB_gemm_config
  kArguments = kConfig,
};

GemmProblem problem_of(Call& call);
weights::Packing packing(Call& call);
weights::Packing unpacking(Call& call);
GemmProblem dequantizing(Call& call, ElementType& out);

}  // namespace mixed_gemm::float_weights
