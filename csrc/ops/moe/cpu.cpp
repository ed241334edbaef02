// CPU kernels of the ops around the experts of a mixture.
#include "cpu/moe/moe_cpu.h"
#include "ops/moe/contract.h"

namespace mixed_gemm::moe {
namespace {

void permute_cpu(Call& call) { moe_permute_cpu(permuted(call), torch_parallel); }
void combine_cpu(Call& call) { moe_combine_cpu(combined(call), torch_parallel); }
void gate_cpu(Call& call) { gated_activation_cpu(gated_rows(call), torch_parallel); }

}  // namespace
}  // namespace mixed_gemm::moe

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("moe_permute", &boxed<contract::kMoePermute, moe::permute_cpu>);
  m.impl("moe_combine", &boxed<contract::kMoeCombine, moe::combine_cpu>);
  m.impl("gated_activation", &boxed<contract::kGatedActivation, moe::gate_cpu>);
}
