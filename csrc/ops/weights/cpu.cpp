// CPU kernels of the ops on weights: packing, unpacking, dequantizing.
#include "cpu/gemm/gemm_cpu.h"
#include "layout/pack_weight.h"
#include "ops/weights/contract.h"

namespace mixed_gemm::weights {
namespace {

void pack_cpu(Call& call) {
  const Packing x = packing(call);
  pack_weight(x.weight, x.q, x.k, x.n, x.k, x.packed, torch_parallel);
}

void unpack_cpu(Call& call) {
  const Packing x = unpacking(call);
  unpack_weight(x.weight, x.packed, x.n, x.k, x.q, torch_parallel);
}

void to_dense_cpu(Call& call) {
  ElementType out;
  const GemmProblem p = dequantizing(call, out);
  dequantize_cpu(p, out, torch_parallel);
}

}  // namespace
}  // namespace mixed_gemm::weights

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("pack_weights", &boxed<contract::kPackWeights, weights::pack_cpu>);
  m.impl("unpack_weights", &boxed<contract::kUnpackWeights, weights::unpack_cpu>);
  m.impl("dequantize_weights", &boxed<contract::kDequantizeWeights, weights::to_dense_cpu>);
}
