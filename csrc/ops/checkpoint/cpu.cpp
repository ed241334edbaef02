// CPU kernels of the ops on checkpoint tensors.
#include "cpu/awq/awq_cpu.h"
#include "layout/repack.h"
#include "ops/checkpoint/checks.h"

namespace mixed_gemm {
namespace {

Tensor awq_gemm_cpu(const Tensor& input, const Tensor& qweight, const Tensor& scales,
                    const Tensor& qzeros, int64_t split_k_iters) {
  CheckedAwq checked = check_awq_gemm(input, qweight, scales, qzeros, split_k_iters);
  Tensor d = empty_on(input, checked.output_sizes);
  checked.problem.d = d.mutable_data_ptr();
  gemm_awq_cpu(checked.problem, torch_parallel);
  return d;
}

Tensor awq_dequantize_cpu(const Tensor& qweight, const Tensor& scales, const Tensor& qzeros) {
  CheckedAwq checked = check_awq_weight("awq_dequantize", qweight, scales, qzeros);
  Tensor w = empty_on(scales, {checked.problem.k, checked.problem.n});
  checked.problem.d = w.mutable_data_ptr();
  dequantize_awq_cpu(checked.problem, torch_parallel);
  return w;
}

Tensor awq_repack_cpu(const Tensor& qweight) {
  const CheckedRepack checked = check_awq_repack(qweight);
  Tensor packed = checked.new_packed();
  repack_awq({checked.words(), checked.n, checked.k},
             static_cast<uint8_t*>(packed.mutable_data_ptr()), torch_parallel);
  return packed;
}

Tensor gptq_repack_cpu(const Tensor& qweight, std::optional<Tensor> perm, int64_t bits) {
  const CheckedRepack checked = check_gptq_repack(qweight, perm, bits);
  Tensor packed = checked.new_packed();
  repack_gptq(checked.words(), checked.order(), checked.bits, checked.n, checked.k,
              static_cast<uint8_t*>(packed.mutable_data_ptr()), torch_parallel);
  return packed;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("awq_gemm", TORCH_BOX(&mixed_gemm::awq_gemm_cpu));
  m.impl("awq_dequantize", TORCH_BOX(&mixed_gemm::awq_dequantize_cpu));
  m.impl("awq_repack", TORCH_BOX(&mixed_gemm::awq_repack_cpu));
  m.impl("gptq_repack", TORCH_BOX(&mixed_gemm::gptq_repack_cpu));
}
