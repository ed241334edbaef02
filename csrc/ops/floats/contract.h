// The ops of packed floats: the product, packing, unpacking, dequantizing; a checked call as plain
// data, with the result made.
#pragma once
#include "ops/call.h"
#include "ops/weights/contract.h"

namespace mixed_gemm::float_weights {

GemmProblem problem_of(Call& call);
weights::Packing packing(Call& call);
weights::Packing unpacking(Call& call);
GemmProblem dequantizing(Call& call, ElementType& out);

}  // namespace mixed_gemm::float_weights
