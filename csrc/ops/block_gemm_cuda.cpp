// CUDA side of the block GEMM.
#include "ops/block_gemm_checks.h"

namespace mixed_gemm {
namespace {

Tensor block_quant_gemm_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                             const Tensor& offset_b, std::optional<Tensor> bias, int64_t block_size,
                             std::string activation) {
  check_block_quant_gemm({a, b, scale_b, offset_b, bias, block_size, activation});
  STD_TORCH_CHECK(false,
                  "mixed_gemm::block_quant_gemm: not implemented for CUDA tensors: the "
                  "quantizer per block and its int8 GEMM are missing from this version. Hint: move "
                  "the tensors to the CPU");
  return {};
}

}  // namespace
}  // namespace mixed_gemm

STABLE_TORCH_LIBRARY_IMPL(mixed_gemm, CUDA, m) {
  m.impl("block_quant_gemm", TORCH_BOX(&mixed_gemm::block_quant_gemm_cuda));
}
