// CUDA kernels of the quantizers of activations.
#include "ops/cuda_call.h"
#include "ops/quantize/checks.h"
#include "transform/quantize_launchers.h"

namespace mixed_gemm {
namespace {

std::tuple<Tensor, Tensor, std::optional<Tensor>> quantize_per_token_cuda(const Tensor& a,
                                                                          bool symmetric) {
  const CheckedPerToken checked = check_quantize_per_token(a, symmetric);
  Call call("quantize_per_token", checked.a);
  if (checked.scale.numel() > 0) {
    call.require(
        cuda_status(launch_quantize_per_token(checked.problem, call.stream()), "quantizing"));
  }
  return {checked.q, checked.scale, checked.azp};
}

Tensor quantize_per_tensor_cuda(const Tensor& a, const Tensor& scale, std::optional<Tensor> azp) {
  const CheckedPerTensor checked = check_quantize_per_tensor(a, scale, azp);
  Call call("quantize_per_tensor", checked.a);
  if (checked.q.numel() > 0) {
    call.require(
        cuda_status(launch_quantize_per_tensor(checked.problem, call.stream()), "quantizing"));
  }
  return checked.q;
}

std::tuple<Tensor, Tensor> quantize_fp8_cuda(const Tensor& a, std::optional<int64_t> block_size) {
  const CheckedFloat8 checked = check_quantize_fp8(a, block_size);
  Call call("quantize_fp8", checked.a);
  if (checked.scale.numel() > 0) {
    call.require(cuda_status(
        launch_quantize_float8(checked.problem, call.info().early_start(), call.stream()),
        "quantizing"));
  }
  return {checked.q, checked.scale};
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("quantize_per_token", TORCH_BOX(&mixed_gemm::quantize_per_token_cuda));
  m.impl("quantize_fp8", TORCH_BOX(&mixed_gemm::quantize_fp8_cuda));
  m.impl("quantize_per_tensor", TORCH_BOX(&mixed_gemm::quantize_per_tensor_cuda));
}
