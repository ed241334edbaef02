// CUDA kernels of the ops on weights: packing, unpacking, dequantizing.
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "ops/weights/packing_cuda.h"

namespace mixed_gemm::weights {

void run_packing(const CudaCall& cuda, const Packing& x, int (*launch)(const PackArgs&),
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

namespace {

void pack_cuda(Call& call) {
  const Packing x = packing(call);
  run_packing(CudaCall(call), x, launch_pack, "packing");
}

void unpack_cuda(Call& call) {
  const Packing x = unpacking(call);
  run_packing(CudaCall(call), x, launch_unpack, "unpacking");
}

void to_dense_cuda(Call& call) {
  ElementType out;
  const GemmProblem p = dequantizing(call, out);
  const CudaCall cuda(call);
  if (p.n * p.k > 0) cuda.require(dequantize_cuda(p, out, p.d, cuda.stream()));
}

}  // namespace
}  // namespace mixed_gemm::weights

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("pack_weights", &boxed<contract::kPackWeights, weights::pack_cuda>);
  m.impl("unpack_weights", &boxed<contract::kUnpackWeights, weights::unpack_cuda>);
  m.impl("dequantize_weights", &boxed<contract::kDequantizeWeights, weights::to_dense_cuda>);
}
