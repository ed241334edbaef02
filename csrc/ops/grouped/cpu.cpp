// CPU kernels of the products of experts: checked calls -> cpu/.
#include "cpu/grouped/grouped_gemm_cpu.h"
#include "ops/contracts.h"
#include "ops/gemm/contract.h"
#include "ops/grouped/contract.h"

namespace mixed_gemm::grouped {
namespace {

template <GroupedGemmProblem (*kProblem)(Call&)>
void run_cpu(Call& call) {
  grouped_gemm_cpu(kProblem(call), torch_parallel);
}

template <GroupedGemmProblem (*kProblem)(Call&), int kConfig>
void run_forced_cpu(Call& call) {
  gemm::require_cpu_config(call, kConfig);
  run_cpu<kProblem>(call);
}

}  // namespace
}  // namespace mixed_gemm::grouped

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  using namespace mixed_gemm::grouped;
  m.impl("grouped_fpA_intB_gemm", &boxed<contract::kGroupedGemm, run_cpu<integer_problem>>);
  m.impl("grouped_fpA_intB_gemm_config",
         &boxed<contract::kGroupedGemmConfig, run_forced_cpu<integer_problem, integers::kConfig>>);
  m.impl("grouped_fpA_fpB_gemm", &boxed<contract::kGroupedFloatGemm, run_cpu<float_problem>>);
  m.impl("grouped_fpA_fpB_gemm_config",
         &boxed<contract::kGroupedFloatGemmConfig, run_forced_cpu<float_problem, floats::kConfig>>);
}
