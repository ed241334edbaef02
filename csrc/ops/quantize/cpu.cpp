// CPU kernels of the quantizers of activations.
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "ops/quantize/checks.h"

namespace mixed_gemm {
namespace {

std::tuple<Tensor, Tensor, std::optional<Tensor>> quantize_per_token_op_cpu(const Tensor& a,
                                                                            bool symmetric) {
  const CheckedPerToken checked = check_quantize_per_token(a, symmetric);
  quantize_per_token_cpu(checked.problem, torch_parallel);
  return {checked.q, checked.scale, checked.azp};
}

Tensor quantize_per_tensor_op_cpu(const Tensor& a, const Tensor& scale, std::optional<Tensor> azp) {
  const CheckedPerTensor checked = check_quantize_per_tensor(a, scale, azp);
  quantize_per_tensor_cpu(checked.problem, torch_parallel);
  return checked.q;
}

std::tuple<Tensor, Tensor> quantize_fp8_op_cpu(const Tensor& a, std::optional<int64_t> block_size) {
  const CheckedFloat8 checked = check_quantize_fp8(a, block_size);
  quantize_float8_cpu(checked.problem, torch_parallel);
  return {checked.q, checked.scale};
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("quantize_per_token", TORCH_BOX(&mixed_gemm::quantize_per_token_op_cpu));
  m.impl("quantize_fp8", TORCH_BOX(&mixed_gemm::quantize_fp8_op_cpu));
  m.impl("quantize_per_tensor", TORCH_BOX(&mixed_gemm::quantize_per_tensor_op_cpu));
}
