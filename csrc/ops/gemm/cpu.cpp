// CPU kernels of fpA_intB_gemm: checked calls -> cpu/.
#include "cpu/gemm/gemm_cpu.h"
#include "ops/call.h"
#include "ops/contracts.h"
#include "ops/gemm/contract.h"

namespace mixed_gemm::gemm {

void require_cpu_config(const Call& call, int at) {
  const std::string only = "cpu_" + cpu_instruction_set(), config = call.text(at);
  if (config != only) {
    wrong_value(call.op(), {"config", "be " + only + " on this CPU", "'" + config + "'"});
  }
}

namespace {

void run_cpu(Call& call) {
  const GemmProblem p = problem_of(call);
  if (p.m * p.n > 0) gemm_cpu(p, torch_parallel);
}

void run_forced_cpu(Call& call) {
  require_cpu_config(call, kConfig);
  run_cpu(call);
}

}  // namespace
}  // namespace mixed_gemm::gemm

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("fpA_intB_gemm", &boxed<contract::kGemm, gemm::run_cpu>);
  m.impl("fpA_intB_gemm_config", &boxed<contract::kGemmConfig, gemm::run_forced_cpu>);
}
