// CUDA kernels of the ops around the experts of a mixture.
#include "ops/cuda_call.h"
#include "ops/moe/contract.h"
#include "transform/moe_launchers.h"

namespace mixed_gemm::moe {
namespace {

void permute_cuda(Call& call) {
  const MoePermuteProblem p = permuted(call);
  CudaCall cuda(call);
  const Pdl pdl = cuda.info().pdl();
  const int64_t blocks = sort_blocks(p);
  void* counts = blocks > 1 ? cuda.allocate()(blocks * p.experts * 4) : nullptr;
  cuda.require(cuda_status(launch_moe_permute(p, static_cast<int32_t*>(counts), pdl, cuda.stream()),
                           "sorting choices"));
}

void combine_cuda(Call& call) {
  const MoeCombineProblem p = combined(call);
  const CudaCall cuda(call);
  if (p.tokens * p.k == 0) return;
  const Pdl pdl = cuda.info().pdl();
  cuda.require(cuda_status(launch_moe_combine(p, pdl, cuda.stream()), "combining rows"));
}

void gate_cuda(Call& call) {
  const GatedActivationProblem p = gated_rows(call);
  const CudaCall cuda(call);
  if (p.m * p.inner == 0) return;
  const Pdl pdl = cuda.info().pdl();
  cuda.require(cuda_status(launch_gated_activation(p, pdl, cuda.stream()), "gating"));
}

}  // namespace
}  // namespace mixed_gemm::moe

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("moe_permute", &boxed<contract::kMoePermute, moe::permute_cuda>);
  m.impl("moe_combine", &boxed<contract::kMoeCombine, moe::combine_cuda>);
  m.impl("gated_activation", &boxed<contract::kGatedActivation, moe::gate_cuda>);
}
