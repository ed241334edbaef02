// The ops on weights: packing, unpacking, dequantizing; a checked call as plain data, with the
// result made. Pointers go into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/gemm.h"

namespace mixed_gemm::weights {

// Integers [n, k] and their packed form; one of the two is read, the other is written.
struct Packing {
  WeightType weight;
  int64_t n, k;
  int8_t* q;
  uint8_t* packed;
};
Packing packing(Call& call);
Packing unpacking(Call& call);

// d: the dense weight, in the type `out`.
GemmProblem dequantizing(Call& call, ElementType& out);

}  // namespace mixed_gemm::weights
