// CUDA kernels of fpA_intB_gemm: checked tensors -> dispatch/. Allocates outputs and workspace
// through torch, on torch's stream.
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "ops/gemm/checks.h"

namespace mixed_gemm {
namespace {

// config empty: dispatch/select.h chooses.
Tensor gemm(const char* op, const GemmArguments& arguments, const std::string& config) {
  CheckedGemm checked = check_gemm(op, arguments);
  CudaCall call(op, checked.a);
  GemmProblem& problem = checked.problem;
  Tensor d = empty_on(arguments.a, checked.output_sizes);
  problem.d = d.mutable_data_ptr();
  if (d.numel() == 0) return d;
  if (problem.k == 0) {
    call.require(finish_dense(problem, nullptr, 0, call.stream()));
    return d;
  }

  RunContext context = call.context();
  context.dense = [&] {
    return run_dequantize_dense(problem, checked.a, checked.pre_scale, d, call.stream());
  };
  call.require(run(call.chosen(problem, config), problem, context));
  return d;
}

Tensor fpA_intB_gemm_cuda(const Tensor& a, const Tensor& b_packed, const Tensor& scales,
                          std::optional<Tensor> zeros, std::optional<Tensor> bias,
                          std::optional<Tensor> pre_scale, int64_t bits, int64_t group_size,
                          std::string zero_mode, std::string activation) {
  return gemm(
      "fpA_intB_gemm",
      {a, b_packed, scales, zeros, bias, pre_scale, bits, group_size, zero_mode, activation}, "");
}

Tensor fpA_intB_gemm_config_cuda(const Tensor& a, const Tensor& b_packed, const Tensor& scales,
                                 std::optional<Tensor> zeros, std::optional<Tensor> bias,
                                 std::optional<Tensor> pre_scale, int64_t bits, int64_t group_size,
                                 std::string zero_mode, std::string activation,
                                 std::string config) {
  const char* op = "fpA_intB_gemm_config";
  if (config.empty()) wrong_value(op, {"config", "name a candidate", "an empty string"});
  return gemm(
      op, {a, b_packed, scales, zeros, bias, pre_scale, bits, group_size, zero_mode, activation},
      config);
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("fpA_intB_gemm", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_cuda));
  m.impl("fpA_intB_gemm_config", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_config_cuda));
}
