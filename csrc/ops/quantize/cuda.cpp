// CUDA kernels of the quantizers of activations.
#include "ops/cuda_call.h"
#include "ops/quantize/contract.h"
#include "transform/quantize_launchers.h"

namespace mixed_gemm::quantize {
namespace {

constexpr const char* kDoing = "quantizing";

void per_token_cuda(Call& call) {
  const QuantizePerTokenProblem p = per_token(call);
  const CudaCall cuda(call);
  if (p.m > 0) cuda.require(cuda_status(launch_quantize_per_token(p, cuda.stream()), kDoing));
}

void per_tensor_cuda(Call& call) {
  const QuantizePerTensorProblem p = per_tensor(call);
  const CudaCall cuda(call);
  if (p.m * p.k == 0) return;
  cuda.require(cuda_status(launch_quantize_per_tensor(p, cuda.stream()), kDoing));
}

void to_float8_cuda(Call& call) {
  const QuantizeFloat8Problem p = to_float8(call);
  const CudaCall cuda(call);
  if (p.m * p.blocks() == 0) return;
  const Pdl pdl = cuda.info().pdl();
  cuda.require(cuda_status(launch_quantize_float8(p, pdl, cuda.stream()), kDoing));
}

}  // namespace
}  // namespace mixed_gemm::quantize

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("quantize_per_token", &boxed<contract::kQuantizePerToken, quantize::per_token_cuda>);
  m.impl("quantize_fp8", &boxed<contract::kQuantizeFp8, quantize::to_float8_cuda>);
  m.impl("quantize_per_tensor", &boxed<contract::kQuantizePerTensor, quantize::per_tensor_cuda>);
}
