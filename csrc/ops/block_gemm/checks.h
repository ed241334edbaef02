// Tensors -> BlockGemmProblem, or an exception that names op, argument, what was expected with
// numbers, what came, what to do.
#pragma once
#include <vector>

#include "ops/torch_stable.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

constexpr const char* kBlockGemmOp = "block_quant_gemm";

struct BlockGemmArguments {
  Tensor a, b, scale_b, offset_b;
  std::optional<Tensor> bias, b_sums;
  int64_t block_size;
  std::string activation;
};

// A checked call: the problem points into these tensors, so they live as long as it.
struct CheckedBlockGemm {
  BlockGemmProblem problem;
  Tensor a, b, scale_b, offset_b, d;
  std::optional<Tensor> bias, b_sums;
};
CheckedBlockGemm check_block_quant_gemm(const BlockGemmArguments& arguments);

}  // namespace mixed_gemm
