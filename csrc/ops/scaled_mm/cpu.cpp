// CPU kernels of scaled_mm: checked tensors -> cpu/.
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "ops/scaled_mm/checks.h"

namespace mixed_gemm {
namespace {

Tensor scaled(const ScaledMmArguments& arguments) {
  CheckedScaledMm checked = check_scaled_mm(arguments);
  Tensor d = empty_on(arguments.a, checked.output_sizes, arguments.out_dtype);
  checked.problem.d = d.mutable_data_ptr();
  if (d.numel() > 0) scaled_mm_cpu(checked.problem, torch_parallel);
  return d;
}

Tensor scaled_mm_op_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                        const Tensor& scale_b, std::optional<Tensor> bias, int32_t out_dtype,
                        std::optional<std::vector<int64_t>> block_size) {
  return scaled(
      {"scaled_mm", a, b, scale_a, scale_b, {}, {}, bias, dtype_of(out_dtype), block_size});
}

Tensor scaled_mm_azp_op_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_a,
                            const Tensor& scale_b, const Tensor& azp_adj, std::optional<Tensor> azp,
                            std::optional<Tensor> bias, int32_t out_dtype) {
  return scaled({"scaled_mm_azp", a, b, scale_a, scale_b, azp_adj, azp, bias, dtype_of(out_dtype)});
}

Tensor scaled_mm_dynamic_op_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                                std::optional<Tensor> azp_adj, std::optional<Tensor> bias) {
  CheckedScaledMmDynamic checked = check_scaled_mm_dynamic(a, b, scale_b, azp_adj, bias);
  Tensor d = empty_on(a, checked.output_sizes);
  checked.problem.product.d = d.mutable_data_ptr();
  if (d.numel() > 0) scaled_mm_dynamic_cpu(checked.problem, torch_parallel);
  return d;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("scaled_mm", TORCH_BOX(&mixed_gemm::scaled_mm_op_cpu));
  m.impl("scaled_mm_azp", TORCH_BOX(&mixed_gemm::scaled_mm_azp_op_cpu));
  m.impl("scaled_mm_dynamic", TORCH_BOX(&mixed_gemm::scaled_mm_dynamic_op_cpu));
}
