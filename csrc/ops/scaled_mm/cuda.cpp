// CUDA kernels of scaled_mm: checked calls -> dispatch/.
#include "dense/scaled.h"
#include "ops/cuda_call.h"
#include "ops/scaled_mm/contract.h"
#include "ops/scaled_mm/in_torch.h"
#include "transform/quantize_launchers.h"

namespace mixed_gemm::scaled_mm {
namespace {

// config empty: dispatch/select.h chooses.
void run_named(Call& call, const Places& at, const std::string& config) {
  const ScaledMmProblem p = problem_of(call, at);
  const bool torchs = config.empty() && prefers_torch(p, cuda_device_info(call.view(0).index));
  CudaCall cuda(call, /*with_kernels=*/!torchs);
  const std::string reason = torchs ? "" : why_not_operand(p.operand, cuda.info());
  MIXED_GEMM_CHECK(kUnsupported, reason.empty(), call.op(), reason);
  if (p.m * p.n == 0) return;
  RunContext context = cuda.context();
  context.dense = [&] {
    multiply_scaled(call, at);
    return Status();
  };
  context.dense_blocks = [&] {
    multiply_blocks(call, at);
    return Status();
  };
  cuda.require(run(cuda.chosen(p, config), p, context));
}

template <const Places& kAt>
void run_cuda(Call& call) {
  run_named(call, kAt, "");
}
void run_forced_cuda(Call& call) { run_named(call, kForced, call.text(kConfig)); }

// Puts codes, scales and zero points of the rows into one piece of workspace.
void place_rows(ScaledMmDynamicProblem& problem, const Allocate& allocate) {
  constexpr int64_t kAligned = 256;  // bytes, as torch's allocator gives them
  QuantizePerTokenProblem& rows = problem.rows;
  const int64_t codes = round_up(rows.m * rows.k, kAligned),
                scales = round_up(rows.m * int64_t{sizeof(float)}, kAligned);
  auto* place = static_cast<char*>(allocate(codes + scales + rows.m * int64_t{sizeof(int32_t)}));
  rows.q = reinterpret_cast<int8_t*>(place);
  rows.scale = reinterpret_cast<float*>(place + codes);
  rows.azp = problem.symmetric() ? nullptr : reinterpret_cast<int32_t*>(place + codes + scales);
  ScaledMmProblem& product = problem.product;
  product.a = rows.q, product.lda = rows.k;
  product.scale_a = rows.scale, product.scale_a_stride = 1;
  product.azp = rows.azp;
}

// Runs one launch that rounds, and those of scaled_mm.
void run_dynamic_cuda(Call& call) {
  ScaledMmDynamicProblem problem = dynamic_problem_of(call);
  CudaCall cuda(call);
  const ScaledMmProblem& product = problem.product;
  if (product.m * product.n == 0) return;
  place_rows(problem, cuda.allocate());
  cuda.require(cuda_status(launch_quantize_per_token(problem.rows, cuda.stream()), "quantizing"));
  cuda.require(run(cuda.chosen(product, ""), product, cuda.context()));
}

}  // namespace
}  // namespace mixed_gemm::scaled_mm

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("scaled_mm", &boxed<contract::kScaledMm, scaled_mm::run_cuda<scaled_mm::kPlain>>);
  m.impl("scaled_mm_azp", &boxed<contract::kScaledMmAzp, scaled_mm::run_cuda<scaled_mm::kWithAzp>>);
  m.impl("scaled_mm_dynamic", &boxed<contract::kScaledMmDynamic, scaled_mm::run_dynamic_cuda>);
  m.impl("_scaled_mm_config", &boxed<contract::kScaledMmConfig, scaled_mm::run_forced_cuda>);
}
