// CPU kernels of the ops on checkpoint tensors.
#include "cpu/awq/awq_cpu.h"
#include "layout/repack.h"
#include "ops/checkpoint/contract.h"

namespace mixed_gemm::checkpoint {
namespace {

void gemm_cpu(Call& call) { gemm_awq_cpu(gemm_problem(call), torch_parallel); }

void dequantize_cpu(Call& call) { dequantize_awq_cpu(dequantize_problem(call), torch_parallel); }

void awq_repack_cpu(Call& call) {
  const Repack x = awq_repack_problem(call);
  repack_awq({x.words, x.n, x.k}, x.packed, torch_parallel);
}

void gptq_repack_cpu(Call& call) {
  const Repack x = gptq_repack_problem(call);
  repack_gptq(x.words, x.order, x.bits, x.n, x.k, x.packed, torch_parallel);
}

}  // namespace
}  // namespace mixed_gemm::checkpoint

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("awq_gemm", &boxed<contract::kAwqGemm, checkpoint::gemm_cpu>);
  m.impl("awq_dequantize", &boxed<contract::kAwqDequantize, checkpoint::dequantize_cpu>);
  m.impl("awq_repack", &boxed<contract::kAwqRepack, checkpoint::awq_repack_cpu>);
  m.impl("gptq_repack", &boxed<contract::kGptqRepack, checkpoint::gptq_repack_cpu>);
}
