// CPU kernels of the ops of packed floats.
#include "cpu/gemm/gemm_cpu.h"
#include "layout/pack_weight.h"
#include "ops/floats/contract.h"
#include "ops/gemm/contract.h"

namespace mixed_gemm::float_weights {
namespace {

void run_cpu(Call& call) {
  const GemmProblem p = problem_of(call);
  if (p.m * p.n > 0) gemm_cpu(p, torch_parallel);
}

void run_forced_cpu(Call& call) {
  gemm::require_cpu_config(call, kConfig);
  run_cpu(call);
}

void pack_cpu(Call& call) {
  const weights::Packing x = packing(call);
  pack_weight(x.weight, x.q, x.k, x.n, x.k, x.packed, torch_parallel);
}

void unpack_cpu(Call& call) {
  const weights::Packing x = unpacking(call);
  unpack_weight(x.weight, x.packed, x.n, x.k, x.q, torch_parallel);
}

void to_dense_cpu(Call& call) {
  ElementType out;
  const GemmProblem p = dequantizing(call, out);
  dequantize_cpu(p, out, torch_parallel);
}

}  // namespace
}  // namespace mixed_gemm::float_weights

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("fpA_fpB_gemm", &boxed<contract::kFloatGemm, float_weights::run_cpu>);
  m.impl("fpA_fpB_gemm_config", &boxed<contract::kFloatGemmConfig, float_weights::run_forced_cpu>);
  m.impl("pack_codes", &boxed<contract::kPackCodes, float_weights::pack_cpu>);
  m.impl("unpack_codes", &boxed<contract::kUnpackCodes, float_weights::unpack_cpu>);
  m.impl("dequantize_codes", &boxed<contract::kDequantizeCodes, float_weights::to_dense_cpu>);
}
