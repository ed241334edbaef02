// CUDA kernels of the ops of packed floats: checked calls -> dispatch/ and transform/.
#include "ops/contracts.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "ops/floats/contract.h"
#include "transform/launchers.h"

namespace mixed_gemm::float_weights {
namespace {

// config empty: dispatch/select.h chooses.
void run_named(Call& call, const std::string& config) {
  const GemmProblem p = problem_of(call);
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
        call.has(kPreScale) ? std::optional<Tensor>(call.tensor(kPreScale)) : std::nullopt;
    return run_dequantize_dense(p, call.tensor(kA), pre_scale, d, cuda.stream());
  };
  cuda.require(run(cuda.chosen(p, config), p, context));
}

void run_cuda(Call& call) { run_named(call, ""); }

void run_forced_cuda(Call& call) {
  const std::string config = call.text(kConfig);
  if (config.empty()) wrong_value(call.op(), {"config", "name a candidate", "an empty string"});
  run_named(call, config);
}

void run_packing(const CudaCall& cuda, const weights::Packing& x, int (*launch)(const PackArgs&),
                 const char* doing) {
  PackArgs args;
  args.weight = x.weight;
  args.n = x.n;
  args.k = x.k;
  args.q = x.q;
  args.packed = x.packed;
  args.stream = cuda.stream();
  if (x.n * x.k > 0) cuda.require(cuda_status(launch(args), doing));
}

void pack_cuda(Call& call) {
  const weights::Packing x = packing(call);
  run_packing(CudaCall(call), x, launch_pack, "packing");
}

void unpack_cuda(Call& call) {
  const weights::Packing x = unpacking(call);
  run_packing(CudaCall(call), x, launch_unpack, "unpacking");
}

void to_dense_cuda(Call& call) {
  ElementType out;
  const GemmProblem p = dequantizing(call, out);
  const CudaCall cuda(call);
  if (p.n * p.k > 0) cuda.require(dequantize_cuda(p, out, p.d, cuda.stream()));
}

}  // namespace
}  // namespace mixed_gemm::float_weights

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("fpA_fpB_gemm", &boxed<contract::kFloatGemm, float_weights::run_cuda>);
  m.impl("fpA_fpB_gemm_config",
         &boxed<contract::kFloatGemmConfig, float_weights::run_forced_cuda>);
  m.impl("pack_floats", &boxed<contract::kPackFloats, float_weights::pack_cuda>);
  m.impl("unpack_floats", &boxed<contract::kUnpackFloats, float_weights::unpack_cuda>);
  m.impl("dequantize_floats", &boxed<contract::kDequantizeFloats, float_weights::to_dense_cuda>);
}
