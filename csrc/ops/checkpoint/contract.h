// AWQ and GPTQ tensors: places of the arguments, and a checked call as plain data, with the result
// made. The problem points into tensors that the call owns.
#pragma once
#include "ops/call.h"
#include "ops/contracts.h"
#include "problem/awq.h"

namespace mixed_gemm::checkpoint {

constexpr int kInput = 0;  // of awq_gemm

AwqProblem gemm_problem(Call& call);
AwqProblem dequantize_problem(Call& call);

// A packed integer weight to repack. bits: of its codes.
struct Repack {
  int bits = 4;
  int64_t n = 0, k = 0;
  const uint32_t* words = nullptr;  // [K * bits / 32, N], or AWQ's [K, N / 8]
  const int32_t* order = nullptr;   // [K] or null
  uint8_t* packed = nullptr;
};
Repack awq_repack_problem(Call& call);
Repack gptq_repack_problem(Call& call);

}  // namespace mixed_gemm::checkpoint
