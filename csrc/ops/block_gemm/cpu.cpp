// CPU kernel of block_quant_gemm: checked calls -> cpu/.
#include "cpu/block_gemm/block_gemm_cpu.h"
#include "ops/block_gemm/contract.h"

namespace mixed_gemm::block_gemm {
namespace {

void run_cpu(Call& call) { block_gemm_cpu(problem_of(call), torch_parallel); }

}  // namespace
}  // namespace mixed_gemm::block_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("block_quant_gemm", &boxed<contract::kBlockQuantGemm, block_gemm::run_cpu>);
}
