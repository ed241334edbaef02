// CUDA kernels of block_quant_gemm: checked tensors -> dispatch/.
#include "block_gemm/family.h"
#include "block_gemm/run.h"
#include "ops/block_gemm/checks.h"
#include "ops/cuda_call.h"

namespace mixed_gemm {
namespace {

// config empty: dispatch/select.h chooses.
Tensor block_gemm(const BlockGemmArguments& arguments, const std::string& config) {
  const CheckedBlockGemm checked = check_block_quant_gemm(arguments);
  const BlockGemmProblem& problem = checked.problem;
  CudaCall call(kBlockGemmOp, checked.a);
  const std::string reason = why_not_block_counts(problem);
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), kBlockGemmOp, reason);
  if (checked.d.numel() == 0) return checked.d;

  call.require(run(call.chosen(problem, config), problem, call.context()));
  return checked.d;
}

Tensor block_quant_gemm_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                             const Tensor& offset_b, std::optional<Tensor> bias,
                             std::optional<Tensor> b_sums, int64_t block_size,
                             std::string activation) {
  return block_gemm({a, b, scale_b, offset_b, bias, b_sums, block_size, activation}, "");
}

Tensor block_quant_gemm_config_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                                    const Tensor& offset_b, std::optional<Tensor> bias,
                                    std::optional<Tensor> b_sums, int64_t block_size,
                                    std::string activation, std::string config) {
  return block_gemm({a, b, scale_b, offset_b, bias, b_sums, block_size, activation}, config);
}

std::tuple<Tensor, Tensor> block_quantize_cuda(const Tensor& a, const Tensor& b,
                                               const Tensor& scale_b, const Tensor& offset_b,
                                               int64_t block_size) {
  const CheckedBlockGemm checked =
      check_block_quant_gemm({a, b, scale_b, offset_b, {}, {}, block_size, kActivationNames[0]});
  const BlockGemmProblem& p = checked.problem;
  CudaCall call(kBlockGemmOp, checked.a);
  const std::string reason = why_not_block_counts(p);
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), kBlockGemmOp, reason);
  const Tensor q = empty_on(a, {p.m, block_row_stride(p)}, ScalarType::Char);
  const Tensor rows = empty_on(a, {p.blocks(), p.m, 4}, ScalarType::Float);
  if (rows.numel() > 0) {
    call.require(quantize_blocks(p, static_cast<int8_t*>(q.mutable_data_ptr()),
                                 static_cast<RowScale*>(rows.mutable_data_ptr()), call.stream()));
  }
  return {q, rows};
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("block_quant_gemm", TORCH_BOX(&mixed_gemm::block_quant_gemm_cuda));
  m.impl("_block_quant_gemm_config", TORCH_BOX(&mixed_gemm::block_quant_gemm_config_cuda));
  m.impl("_block_quantize", TORCH_BOX(&mixed_gemm::block_quantize_cuda));
}
