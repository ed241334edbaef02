// CUDA kernels of fpA_intB_gemm: checked calls -> dispatch/. Workspace comes from torch, on torch's
// stream.
#include "ops/contracts.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "ops/gemm/contract.h"
#include "ops/gemm/product_cuda.h"

namespace mixed_gemm::gemm {

std::string named_config(Call& call, int at) {
  const std::string config = call.text(at);
  if (config.empty()) wrong_value(call.op(), {"config", "name a candidate", "an empty string"});
  return config;
}

void run_product(Call& call, const GemmProblem& p, const OperandPlaces& at,
                 const std::string& config) {
  CudaCall cuda(call);
  if (p.m * p.n == 0) return;
  if (p.k == 0) {
    cuda.require(finish_dense(p, nullptr, 0, cuda.stream()));
    return;
  }
  RunContext context = cuda.context();
  context.dense = [&] {
    Tensor d = call.result(0);
    const auto pre_scale =
        call.has(at.pre_scale) ? std::optional<Tensor>(call.tensor(at.pre_scale)) : std::nullopt;
    return run_dequantize_dense(p, call.tensor(at.a), pre_scale, d, cuda.stream());
  };
  cuda.require(run(cuda.chosen(p, config), p, context));
}

namespace {

void run_named(Call& call, const std::string& config) {
  const GemmProblem p = problem_of(call);
  run_product(call, p, {kA, kPreScale}, config);
}

void run_cuda(Call& call) { run_named(call, ""); }

void run_forced_cuda(Call& call) { run_named(call, named_config(call, kConfig)); }

}  // namespace
}  // namespace mixed_gemm::gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("fpA_intB_gemm", &boxed<contract::kGemm, gemm::run_cuda>);
  m.impl("fpA_intB_gemm_config", &boxed<contract::kGemmConfig, gemm::run_forced_cuda>);
}
