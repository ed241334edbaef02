// The ops of packed floats: the product, packing, unpacking, dequantizing; a checked call as plain
// data, with the result made.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "ops/weights/contract.h"

namespace mixed_gemm::float_weights {

// The arguments of fpA_fpB_gemm, and one of fpA_fpB_gemm_config.
enum : int {
  kA,
  kPacked,
  kScales,
  kFactor,
  kBias,
  kPreScale,
  kWeightName,
  kGroupSize,
  kActivation,
  kConfig,
};

GemmProblem problem_of(Call& call);
weights::Packing packing(Call& call);
weights::Packing unpacking(Call& call);
GemmProblem dequantizing(Call& call, ElementType& out);

}  // namespace mixed_gemm::float_weights
