// CPU kernels of the ops: checked tensors -> layout/ and cpu/.
#include "cpu/gemm/gemm_cpu.h"
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "layout/pack_weight.h"
#include "layout/weight_layout.h"
#include "ops/gemm/checks.h"
#include "ops/scaled_mm/checks.h"

namespace mixed_gemm {
namespace {

Tensor pack_weights_cpu(const Tensor& q, int64_t bits, bool check) {
  const Tensor values = check_quantized(q, bits, check);
  const int64_t n = values.size(0), k = values.size(1);
  Tensor packed = torch::stable::new_empty(
      values, {round_up(n, kPadN), round_up(k, kPadK) * bits / 8}, ScalarType::Byte);
  pack_weight(static_cast<int>(bits), static_cast<const int8_t*>(values.const_data_ptr()), k, n, k,
              static_cast<uint8_t*>(packed.mutable_data_ptr()), torch_parallel);
  return packed;
}

Tensor unpack_weights_cpu(const Tensor& b_packed, int64_t bits, int64_t n, int64_t k) {
  const Tensor packed = check_unpack(b_packed, bits, n, k);
  Tensor q = torch::stable::new_empty(packed, {n, k}, ScalarType::Char);
  unpack_weight(static_cast<int>(bits), static_cast<const uint8_t*>(packed.const_data_ptr()), n, k,
                static_cast<int8_t*>(q.mutable_data_ptr()), torch_parallel);
  return q;
}

Tensor dequantize_weights_cpu(const Tensor& b_packed, const Tensor& scales,
                              std::optional<Tensor> zeros, int64_t bits, int64_t group_size,
                              std::string zero_mode, int64_t n, int64_t k, int32_t dtype) {
  CheckedDequantize checked =
      check_dequantize(b_packed, scales, zeros, bits, group_size, zero_mode, n, k, dtype_of(dtype));
  GemmProblem& problem = checked.weight.problem;
  Tensor out = torch::stable::new_empty(scales, {n, k}, dtype_of(dtype));
  problem.d = out.mutable_data_ptr();
  dequantize_cpu(problem, checked.out, torch_parallel);
  return out;
}

Tensor gemm(const char* op, const GemmArguments& arguments) {
  CheckedGemm checked = check_gemm(op, arguments);
  Tensor d = torch::stable::new_empty(arguments.a, checked.output_sizes);
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

Tensor scaled(const ScaledMmArguments& arguments) {
  CheckedScaledMm checked = check_scaled_mm(arguments);
  Tensor d = torch::stable::new_empty(arguments.a, checked.output_sizes, arguments.out_dtype);
  checked.problem.d = d.mutable_data_ptr();
  if (d.numel() > 0) scaled_mm_cpu(checked.problem, torch_parallel);
  return d;
}

Tensor scaled_mm_op_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                        const Tensor& scale_b, std::optional<Tensor> bias, int32_t out_dtype) {
  return scaled({"scaled_mm", a, b, scale_a, scale_b, {}, {}, bias, dtype_of(out_dtype)});
}

Tensor scaled_mm_azp_op_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                            const Tensor& scale_b, const Tensor& azp_adj, std::optional<Tensor> azp,
                            std::optional<Tensor> bias, int32_t out_dtype) {
  return scaled({"scaled_mm_azp", a, b, scale_a, scale_b, azp_adj, azp, bias, dtype_of(out_dtype)});
}

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

STABLE_TORCH_LIBRARY_IMPL(mixed_gemm, CPU, m) {
  m.impl("pack_weights", TORCH_BOX(&mixed_gemm::pack_weights_cpu));
  m.impl("unpack_weights", TORCH_BOX(&mixed_gemm::unpack_weights_cpu));
  m.impl("dequantize_weights", TORCH_BOX(&mixed_gemm::dequantize_weights_cpu));
  m.impl("fpA_intB_gemm", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_cpu));
  m.impl("fpA_intB_gemm_config", TORCH_BOX(&mixed_gemm::fpA_intB_gemm_config_cpu));
  m.impl("scaled_mm", TORCH_BOX(&mixed_gemm::scaled_mm_op_cpu));
  m.impl("scaled_mm_azp", TORCH_BOX(&mixed_gemm::scaled_mm_azp_op_cpu));
  m.impl("quantize_per_token", TORCH_BOX(&mixed_gemm::quantize_per_token_op_cpu));
  m.impl("quantize_per_tensor", TORCH_BOX(&mixed_gemm::quantize_per_tensor_op_cpu));
}
