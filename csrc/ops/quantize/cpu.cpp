// CPU kernels of the quantizers of activations.
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "ops/scaled_mm/checks.h"

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

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("quantize_per_token", TORCH_BOX(&mixed_gemm::quantize_per_token_op_cpu));
  m.impl("quantize_per_tensor", TORCH_BOX(&mixed_gemm::quantize_per_tensor_op_cpu));
}
