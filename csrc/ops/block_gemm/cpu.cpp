// CPU kernel of block_quant_gemm: checked tensors -> cpu/.
#include "cpu/block_gemm/block_gemm_cpu.h"
#include "ops/block_gemm/checks.h"

namespace mixed_gemm {
namespace {

Tensor block_quant_gemm_cpu(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                            const Tensor& offset_b, std::optional<Tensor> bias,
                            std::optional<Tensor> b_sums, int64_t block_size,
                            std::string activation) {
  const CheckedBlockGemm checked =
      check_block_quant_gemm({a, b, scale_b, offset_b, bias, b_sums, block_size, activation});
  block_gemm_cpu(checked.problem, torch_parallel);
  return checked.d;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("block_quant_gemm", TORCH_BOX(&mixed_gemm::block_quant_gemm_cpu));
}
