// CUDA kernels of the ops of packed floats.
#include "ops/dense_cuda.h"
#include "ops/floats/contract.h"
#include "ops/gemm/product_cuda.h"
#include "ops/weights/packing_cuda.h"

namespace mixed_gemm::float_weights {
namespace {

void run_named(Call& call, const std::string& config) {
  const GemmProblem p = problem_of(call);
  gemm::run_product(call, p, {kA, kPreScale}, config);
}

void run_cuda(Call& call) { run_named(call, ""); }

void run_forced_cuda(Call& call) { run_named(call, gemm::named_config(call, kConfig)); }

void pack_cuda(Call& call) {
  const weights::Packing x = packing(call);
  weights::run_packing(CudaCall(call), x, launch_pack, "packing");
}

void unpack_cuda(Call& call) {
  const weights::Packing x = unpacking(call);
  weights::run_packing(CudaCall(call), x, launch_unpack, "unpacking");
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
  m.impl("fpA_fpB_gemm_config", &boxed<contract::kFloatGemmConfig, float_weights::run_forced_cuda>);
  m.impl("pack_codes", &boxed<contract::kPackCodes, float_weights::pack_cuda>);
  m.impl("unpack_codes", &boxed<contract::kUnpackCodes, float_weights::unpack_cuda>);
  m.impl("dequantize_codes", &boxed<contract::kDequantizeCodes, float_weights::to_dense_cuda>);
}
