// Float activations that are rounded: tensors -> the problems of problem/quantize.h, or an
// exception that names op, argument, what was expected with numbers, what came, what to do. All of
// it happens before any launch.
#pragma once
#include <optional>

#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"
#include "ops/torch_stable.h"
#include "problem/quantize.h"

namespace mixed_gemm {

// Fills the part of the problem that says where a lies; returns the tensor it points into.
template <typename Problem>
Tensor check_activations(const char* op, const Tensor& a, Problem& p) {
  p.element = element_type(op, "a", dtype_of(a));
  check_rows(op, "a", a);
  p.m = rows_of(a);
  p.k = a.size(a.dim() - 1);
  const auto stride = row_stride(a);
  const Tensor kept = stride ? a : as_contiguous(a);
  p.a = kept.const_data_ptr();
  p.a_stride = stride.value_or(p.k);
  return kept;
}

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
