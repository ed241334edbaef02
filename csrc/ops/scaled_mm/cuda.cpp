// CUDA kernels of scaled_mm: checked tensors -> dispatch/.
#include "ops/cuda_call.h"
#include "ops/scaled_mm/checks.h"

namespace mixed_gemm {
namespace {

// config empty: dispatch/select.h chooses.
Tensor scaled(const ScaledMmArguments& arguments, const std::string& config) {
  const char* op = arguments.op;
  CheckedScaledMm checked = check_scaled_mm(arguments);
  ScaledMmProblem& problem = checked.problem;
  Call call(op, checked.a);
  const std::string reason = why_not_operand(problem.operand, call.info());
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), op, reason);
  MIXED_GEMM_CHECK(
      kUnsupported, problem.block_k == 0, op,
      "block_size has no CUDA kernel in this build; mixed_gemm.scaled_mm (the function "
      "of the package) runs it in torch, or move the tensors to the CPU");
  Tensor d = empty_on(arguments.a, checked.output_sizes, arguments.out_dtype);
  problem.d = d.mutable_data_ptr();
  if (d.numel() == 0) return d;

  call.require(run(call.chosen(problem, config), problem, call.context()));
  return d;
}

Tensor scaled_mm_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                      const Tensor& scale_b, std::optional<Tensor> bias, int32_t out_dtype,
                      std::optional<std::vector<int64_t>> block_size) {
  return scaled(
      {"scaled_mm", a, b, scale_a, scale_b, {}, {}, bias, dtype_of(out_dtype), block_size}, "");
}

Tensor scaled_mm_azp_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                          const Tensor& scale_b, const Tensor& azp_adj, std::optional<Tensor> azp,
                          std::optional<Tensor> bias, int32_t out_dtype) {
  return scaled({"scaled_mm_azp", a, b, scale_a, scale_b, azp_adj, azp, bias, dtype_of(out_dtype)},
                "");
}

Tensor scaled_mm_config_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                             const Tensor& scale_b, std::optional<Tensor> azp_adj,
                             std::optional<Tensor> azp, std::optional<Tensor> bias,
                             int32_t out_dtype, std::string config) {
  return scaled(
      {"_scaled_mm_config", a, b, scale_a, scale_b, azp_adj, azp, bias, dtype_of(out_dtype)},
      config);
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("scaled_mm", TORCH_BOX(&mixed_gemm::scaled_mm_cuda));
  m.impl("scaled_mm_azp", TORCH_BOX(&mixed_gemm::scaled_mm_azp_cuda));
  m.impl("_scaled_mm_config", TORCH_BOX(&mixed_gemm::scaled_mm_config_cuda));
}
