#include "ops/quantize/checks.h"

#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"

namespace mixed_gemm {
namespace {

Tensor check_number(const char* op, const char* argument, const Tensor& t, ScalarType dtype) {
  check_dtype(op, argument, t, dtype);
  if (t.numel() != 1) {
    wrong_value(op, {argument, "have one element (per tensor)", text(sizes_of(t))});
  }
  return contiguous_elements(t);
}

}  // namespace

CheckedPerToken check_quantize_per_token(const Tensor& a, bool symmetric) {
  check_tensors("quantize_per_token", {{"a", a}});
  CheckedPerToken checked;
  checked.a = check_activations("quantize_per_token", a, checked.problem);
  std::vector<int64_t> sizes = sizes_of(a);
  checked.q = empty_on(a, sizes, ScalarType::Char);
  sizes.back() = 1;
  checked.scale = empty_on(a, sizes, ScalarType::Float);
  if (!symmetric) checked.azp = empty_on(a, sizes, ScalarType::Int);
  checked.problem.q = static_cast<int8_t*>(checked.q.mutable_data_ptr());
  checked.problem.scale = static_cast<float*>(checked.scale.mutable_data_ptr());
  if (checked.azp) checked.problem.azp = static_cast<int32_t*>(checked.azp->mutable_data_ptr());
  return checked;
}

CheckedPerTensor check_quantize_per_tensor(const Tensor& a, const Tensor& scale,
                                           const std::optional<Tensor>& azp) {
  const char* op = "quantize_per_tensor";
  check_tensors(op, {{"a", a}, {"scale", scale}, {"azp", azp}});
  CheckedPerTensor checked;
  checked.a = check_activations(op, a, checked.problem);
  checked.scale = check_number(op, "scale", scale, ScalarType::Float);
  checked.problem.scale = static_cast<const float*>(checked.scale.const_data_ptr());
  if (azp) {
    checked.azp = check_number(op, "azp", *azp, ScalarType::Int);
    checked.problem.azp = static_cast<const int32_t*>(checked.azp->const_data_ptr());
  }
  checked.q = empty_on(a, sizes_of(a), ScalarType::Char);
  checked.problem.q = static_cast<int8_t*>(checked.q.mutable_data_ptr());
  return checked;
}

CheckedFloat8 check_quantize_fp8(const Tensor& a, std::optional<int64_t> block_size) {
  const char* op = "quantize_fp8";
  check_tensors(op, {{"a", a}});
  CheckedFloat8 checked;
  QuantizeFloat8Problem& p = checked.problem;
  checked.a = check_activations(op, a, p);
  if (block_size && *block_size < 1) {
    wrong_value(op,
                {"block_size", "be None (all of K) or at least 1", std::to_string(*block_size)});
  }
  p.block_k = block_size.value_or(0);
  std::vector<int64_t> sizes = sizes_of(a);
  checked.q = empty_on(a, sizes, ScalarType::Float8_e4m3fn);
  sizes.back() = p.blocks();
  checked.scale = empty_on(a, sizes, ScalarType::Float);
  p.q = static_cast<uint8_t*>(checked.q.mutable_data_ptr());
  p.scale = static_cast<float*>(checked.scale.mutable_data_ptr());
  return checked;
}

}  // namespace mixed_gemm
