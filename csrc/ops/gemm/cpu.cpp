// CPU kernels of fpA_intB_gemm: checked tensors -> cpu/.
#include "cpu/gemm/gemm_cpu.h"
#include "ops/gemm/checks.h"

namespace mixed_gemm {
namespace {

Tensor gemm(const char* op, const GemmArguments& arguments) {
  CheckedGemm checked = check_gemm(op, arguments);
  Tensor d = empty_on(arguments.a, checked.output_sizes);
  checked.problem.d = d.mutable_data_ptr();
  if (d.numel() > 0) gemm_cpu(checked.problem, torch_parallel);
  return d;
}

Tensor fpA_intB_gemm_cpu(const Tensor& a, const Tensor& b_packed, const Tensor& scales,
                         std::optional<Tensor> zeros, std::optional<Tensor> bias,
                         std::optional<Tensor> pre_scale, int64_t bits, int64_t group_size,
                         std::string zero_mode, std::string activation) {
  return gemm("fpA_intB_gemm", {a, b_packed, scales, zeros, bias, pre_scale, bits, group_size,
                                zero_mode, activation});
}

Tensor fpA_intB_gemm_config_cpu(const Tensor& a, const Tensor& b_packed, const Tensor& scales,
                                std::optional<Tensor> zeros, std::optional<Tensor> bias,
                                std::optional<Tensor> pre_scale, int64_t bits, int64_t group_size,
                                std::string zero_mode, std::string activation, std::string config) {
  const char* op = "fpA_intB_gemm_config";
  const std::string only = "cpu_" + cpu_instruction_set();
  if (config != only)
    wrong_value(op, {"config", "be " + only + " on this CPU", "'" + config + "'"});
  return gemm(
      op, {a, b_packed, scales, zeros, bias, pre_scale, bits, group_size, zero_mode, activation});
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("fpA_intB_gemm", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_cpu));
  m.impl("fpA_intB_gemm_config", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_config_cpu));
}
