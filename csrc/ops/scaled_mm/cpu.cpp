// CPU kernels of scaled_mm: checked calls -> cpu/.
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "ops/scaled_mm/contract.h"

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

}  // namespace
}  // namespace mixed_gemm::scaled_mm

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("scaled_mm", &boxed<contract::kScaledMm, scaled_mm::run_cpu<scaled_mm::kPlain>>);
  m.impl("scaled_mm_azp", &boxed<contract::kScaledMmAzp, scaled_mm::run_cpu<scaled_mm::kWithAzp>>);
  m.impl("scaled_mm_dynamic", &boxed<contract::kScaledMmDynamic, scaled_mm::run_dynamic_cpu>);
}
