// CUDA kernels of the ops on checkpoint tensors.
#include "awq/family.h"
#include "ops/checkpoint/contract.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "transform/launchers.h"

namespace mixed_gemm::checkpoint {
namespace {

void dequantize(const CudaCall& cuda, const AwqProblem& p) {
  if (p.k * p.n == 0) return;
  cuda.require(cuda_status(launch_dequantize_awq(p, cuda.stream()), "dequantizing"));
}

// With few rows weights go from the checkpoint's tensors straight into mma fragments, with many
// they are dequantized for a dense GEMM. Both have fp32 sums and one rounding.
void gemm_cuda(Call& call) {
  AwqProblem p = gemm_problem(call);
  CudaCall cuda(call);
  if (p.m * p.n == 0) return;
  if (Awq::takes(p)) {
    cuda.require(Awq::run(p, cuda.context()));
    return;
  }
  const Tensor w = cuda.empty({p.k, p.n}, call.scalar_type(kInput));
  p.d = w.mutable_data_ptr();
  dequantize(cuda, p);
  Tensor out = torch::stable::view(call.result(0), {p.m, p.n});
  dense_mm(torch::stable::reshape(call.tensor(kInput), {p.m, p.k}), w, out);
}

void dequantize_cuda(Call& call) {
  const AwqProblem p = dequantize_problem(call);
  dequantize(CudaCall(call), p);
}

void run_repack(const CudaCall& cuda, const Repack& x, int (*launch)(const RepackArgs&)) {
  RepackArgs args;
  args.bits = x.bits;
  args.n = x.n;
  args.k = x.k;
  args.qweight = x.words;
  args.perm = x.order;
  args.packed = x.packed;
  args.stream = cuda.stream();
  if (x.n * x.k > 0) cuda.require(cuda_status(launch(args), "repacking"));
}

void awq_repack_cuda(Call& call) {
  const Repack x = awq_repack_problem(call);
  run_repack(CudaCall(call), x, launch_repack_awq);
}

void gptq_repack_cuda(Call& call) {
  const Repack x = gptq_repack_problem(call);
  run_repack(CudaCall(call), x, launch_repack_gptq);
}

}  // namespace
}  // namespace mixed_gemm::checkpoint

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("awq_gemm", &boxed<contract::kAwqGemm, checkpoint::gemm_cuda>);
  m.impl("awq_dequantize", &boxed<contract::kAwqDequantize, checkpoint::dequantize_cuda>);
  m.impl("awq_repack", &boxed<contract::kAwqRepack, checkpoint::awq_repack_cuda>);
  m.impl("gptq_repack", &boxed<contract::kGptqRepack, checkpoint::gptq_repack_cuda>);
}
