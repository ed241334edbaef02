// CUDA kernels of the products of experts: checked calls -> dispatch/.
#include "ops/contracts.h"
#include "ops/cuda_call.h"
#include "ops/gemm/product_cuda.h"
#include "ops/grouped/contract.h"

namespace mixed_gemm::grouped {
namespace {

void run_problem(Call& call, const GroupedGemmProblem& p, const std::string& config) {
  CudaCall cuda(call);
  if (p.gemm.m * p.gemm.n == 0) return;
  const RunContext context = cuda.context();
  cuda.require(run(cuda.chosen(p, config), p, context));
}

template <GroupedGemmProblem (*kProblem)(Call&)>
void run_cuda(Call& call) {
  run_problem(call, kProblem(call), "");
}

template <GroupedGemmProblem (*kProblem)(Call&), int kConfig>
void run_forced_cuda(Call& call) {
  run_problem(call, kProblem(call), gemm::named_config(call, kConfig));
}

}  // namespace
}  // namespace mixed_gemm::grouped

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  using namespace mixed_gemm::grouped;
  m.impl("grouped_fpA_intB_gemm", &boxed<contract::kGroupedGemm, run_cuda<integer_problem>>);
  m.impl("grouped_fpA_intB_gemm_config",
         &boxed<contract::kGroupedGemmConfig, run_forced_cuda<integer_problem, integers::kConfig>>);
  m.impl("grouped_fpA_fpB_gemm", &boxed<contract::kGroupedFloatGemm, run_cuda<float_problem>>);
  m.impl(
      "grouped_fpA_fpB_gemm_config",
      &boxed<contract::kGroupedFloatGemmConfig, run_forced_cuda<float_problem, floats::kConfig>>);
}
