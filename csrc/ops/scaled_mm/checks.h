// Tensors -> ScaledMmProblem and ScaledMmDynamicProblem, or an exception that names op, argument,
// what was expected with numbers, what came, what to do. All of it happens before any launch.
#pragma once
#include <optional>
#include <vector>

#include "ops/torch_stable.h"
#include "problem/scaled_mm.h"
#include "problem/scaled_mm_dynamic.h"

namespace mixed_gemm {

// The arguments that scaled_mm and scaled_mm_azp share.
struct ScaledMmArguments {
  const char* op;
  Tensor a, b, scale_a, scale_b;
  std::optional<Tensor> azp_adj, azp, bias;
  ScalarType out_dtype;
  std::optional<std::vector<int64_t>> block_size = std::nullopt;  // rows of the weight, K
};

// A checked call: the problem points into these tensors, so they live as long as it.
struct CheckedScaledMm {
  ScaledMmProblem problem;  // d is set by the caller
  std::vector<int64_t> output_sizes;
  Tensor a, b, scale_a, scale_b;
  std::optional<Tensor> azp_adj, azp, bias;
};
CheckedScaledMm check_scaled_mm(const ScaledMmArguments& arguments);

struct CheckedScaledMmDynamic {
  ScaledMmDynamicProblem problem;  // product.d is set by the caller
  std::vector<int64_t> output_sizes;
  Tensor a, b, scale_b;
  std::optional<Tensor> azp_adj, bias;
};
CheckedScaledMmDynamic check_scaled_mm_dynamic(const Tensor& a, const Tensor& b,
                                               const Tensor& scale_b,
                                               const std::optional<Tensor>& azp_adj,
                                               const std::optional<Tensor>& bias);

}  // namespace mixed_gemm
