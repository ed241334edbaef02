// Tensors -> ScaledMmProblem and QuantizeProblem, or an exception that names op, argument, what was
// expected with numbers, what came, what to do. All of it happens before any launch.
#pragma once
#include <optional>
#include <vector>

#include "ops/torch_stable.h"
#include "problem/quantize.h"
#include "problem/scaled_mm.h"

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

// Checked activations with the outputs of a quantizer: q like a, scale and azp [..., 1].
struct CheckedPerToken {
  QuantizePerTokenProblem problem;
  Tensor a, q, scale;
  std::optional<Tensor> azp;  // none when symmetric
};
CheckedPerToken check_quantize_per_token(const Tensor& a, bool symmetric);

struct CheckedPerTensor {
  QuantizePerTensorProblem problem;
  Tensor a, q, scale;
  std::optional<Tensor> azp;
};
CheckedPerTensor check_quantize_per_tensor(const Tensor& a, const Tensor& scale,
                                           const std::optional<Tensor>& azp);

// q like a, scale [..., 1] or [..., blocks of K].
struct CheckedFloat8 {
  QuantizeFloat8Problem problem;
  Tensor a, q, scale;
};
CheckedFloat8 check_quantize_fp8(const Tensor& a, std::optional<int64_t> block_size);

}  // namespace mixed_gemm
