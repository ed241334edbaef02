// CUDA kernels of scaled_mm: checked tensors -> dispatch/.
#include "ops/cuda_call.h"
#include "ops/scaled_mm/checks.h"
#include "transform/quantize_launchers.h"

namespace mixed_gemm {
namespace {

// config empty: dispatch/select.h chooses.
Tensor scaled(const ScaledMmArguments& arguments, const std::string& config) {
  const char* op = arguments.op;
  CheckedScaledMm checked = check_scaled_mm(arguments);
  ScaledMmProblem& problem = checked.problem;
  CudaCall call(op, checked.a);
  const std::string reason = why_not_operand(problem.operand, call.info());
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), op, reason);
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
                             int32_t out_dtype, std::string config,
                             std::optional<std::vector<int64_t>> block_size) {
  return scaled({"_scaled_mm_config", a, b, scale_a, scale_b, azp_adj, azp, bias,
                 dtype_of(out_dtype), block_size},
                config);
}

// Codes, scales and zero points of the rows in one piece of workspace.
void place_rows(ScaledMmDynamicProblem& problem, const Allocate& allocate) {
  constexpr int64_t kAligned = 256;  // bytes, as torch's allocator gives them
  QuantizePerTokenProblem& rows = problem.rows;
  const int64_t codes = round_up(rows.m * rows.k, kAligned),
                scales = round_up(rows.m * int64_t{sizeof(float)}, kAligned);
  auto* place = static_cast<char*>(allocate(codes + scales + rows.m * int64_t{sizeof(int32_t)}));
  rows.q = reinterpret_cast<int8_t*>(place);
  rows.scale = reinterpret_cast<float*>(place + codes);
  rows.azp = problem.symmetric() ? nullptr : reinterpret_cast<int32_t*>(place + codes + scales);
  ScaledMmProblem& product = problem.product;
  product.a = rows.q, product.lda = rows.k;
  product.scale_a = rows.scale, product.scale_a_stride = 1;
  product.azp = rows.azp;
}

// One launch that rounds, and those of scaled_mm.
Tensor scaled_mm_dynamic_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                              std::optional<Tensor> azp_adj, std::optional<Tensor> bias) {
  CheckedScaledMmDynamic checked = check_scaled_mm_dynamic(a, b, scale_b, azp_adj, bias);
  ScaledMmDynamicProblem& problem = checked.problem;
  CudaCall call("scaled_mm_dynamic", checked.a);
  Tensor d = empty_on(a, checked.output_sizes);
  problem.product.d = d.mutable_data_ptr();
  if (d.numel() == 0) return d;

  place_rows(problem, call.allocate());
  call.require(cuda_status(launch_quantize_per_token(problem.rows, call.stream()), "quantizing"));
  call.require(run(call.chosen(problem.product, ""), problem.product, call.context()));
  return d;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("scaled_mm", TORCH_BOX(&mixed_gemm::scaled_mm_cuda));
  m.impl("scaled_mm_azp", TORCH_BOX(&mixed_gemm::scaled_mm_azp_cuda));
  m.impl("scaled_mm_dynamic", TORCH_BOX(&mixed_gemm::scaled_mm_dynamic_cuda));
  m.impl("_scaled_mm_config", TORCH_BOX(&mixed_gemm::scaled_mm_config_cuda));
}
