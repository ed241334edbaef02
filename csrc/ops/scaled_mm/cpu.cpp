// CPU kernels of scaled_mm: checked calls -> cpu/.
#include "core/printable.h"
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "dense/scaled.h"
#include "ops/scaled_mm/contract.h"
#include "ops/scaled_mm/in_torch.h"

namespace mixed_gemm::scaled_mm {
namespace {

template <const Places& kAt>
void run_cpu(Call& call) {
  const ScaledMmProblem p = problem_of(call, kAt);
  if (p.m * p.n > 0) scaled_mm_cpu(p, torch_parallel);
}

void run_dynamic_cpu(Call& call) {
  const ScaledMmDynamicProblem p = dynamic_problem_of(call);
  if (p.product.m * p.product.n > 0) scaled_mm_dynamic_cpu(p, torch_parallel);
}

// Runs what torch multiplies on some GPUs, by the name that it has there, so that tests see it
// without one.
void run_forced_cpu(Call& call) {
  const ScaledMmProblem p = problem_of(call, kForced);
  const Family<ScaledMmProblem>& family = p.block_k > 0 ? TorchBlocks::plan : TorchScaled::plan;
  const std::string name = family.config(Choice()), config = call.text(kConfig);
  MIXED_GEMM_CHECK(kValue, p.operand == OperandType::kFloat8E4M3, call.op(),
                   "a must be float8_e4m3fn on a CPU, got int8");
  MIXED_GEMM_CHECK(kValue, config == name, call.op(), "config must be ", name, " on a CPU, got ",
                   printable(config));
  if (p.m * p.n == 0) return;
  if (p.block_k > 0) {
    multiply_blocks(call, kForced);
  } else {
    multiply_scaled(call, kForced);
  }
}

}  // namespace
}  // namespace mixed_gemm::scaled_mm

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("scaled_mm", &boxed<contract::kScaledMm, scaled_mm::run_cpu<scaled_mm::kPlain>>);
  m.impl("scaled_mm_azp", &boxed<contract::kScaledMmAzp, scaled_mm::run_cpu<scaled_mm::kWithAzp>>);
  m.impl("_scaled_mm_config", &boxed<contract::kScaledMmConfig, scaled_mm::run_forced_cpu>);
  m.impl("scaled_mm_dynamic", &boxed<contract::kScaledMmDynamic, scaled_mm::run_dynamic_cpu>);
}
