// CUDA kernels of block_quant_gemm: checked calls -> dispatch/.
#include "block_gemm/family.h"
#include "block_gemm/run.h"
#include "ops/block_gemm/contract.h"
#include "ops/cuda_call.h"

namespace mixed_gemm::block_gemm {
namespace {

void require_counts(const Call& call, const BlockGemmProblem& p) {
  const std::string reason = why_not_block_counts(p);
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), call.op(), reason);
}

// config empty: dispatch/select.h chooses.
void run_named(Call& call, const std::string& config) {
  const BlockGemmProblem p = problem_of(call);
  CudaCall cuda(call);
  require_counts(call, p);
  if (p.m * p.n > 0) cuda.require(run(cuda.chosen(p, config), p, cuda.context()));
}

void run_cuda(Call& call) { run_named(call, ""); }
void run_forced_cuda(Call& call) { run_named(call, call.text(kConfig)); }

void quantize_cuda(Call& call) {
  const BlockGemmProblem p = operands_of(call);
  const CudaCall cuda(call);
  require_counts(call, p);
  const Tensor q = cuda.empty({p.m, block_row_stride(p)}, ScalarType::Char);
  const Tensor rows = cuda.empty({p.blocks(), p.m, 4}, ScalarType::Float);
  if (rows.numel() > 0) {
    cuda.require(quantize_blocks(p, static_cast<int8_t*>(q.mutable_data_ptr()),
                                 static_cast<RowScale*>(rows.mutable_data_ptr()), cuda.stream()));
  }
  call.give(0, q);
  call.give(1, rows);
}

}  // namespace
}  // namespace mixed_gemm::block_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("block_quant_gemm", &boxed<contract::kBlockQuantGemm, block_gemm::run_cuda>);
  m.impl("_block_quant_gemm_config",
         &boxed<contract::kBlockQuantGemmConfig, block_gemm::run_forced_cuda>);
  m.impl("_block_quantize", &boxed<contract::kBlockQuantize, block_gemm::quantize_cuda>);
}
