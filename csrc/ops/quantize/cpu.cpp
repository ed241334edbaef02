// CPU kernels of the quantizers of activations.
#include "cpu/scaled_mm/scaled_mm_cpu.h"
#include "ops/quantize/contract.h"

namespace mixed_gemm::quantize {
namespace {

void per_token_cpu(Call& call) { quantize_per_token_cpu(per_token(call), torch_parallel); }
void per_tensor_cpu(Call& call) { quantize_per_tensor_cpu(per_tensor(call), torch_parallel); }
void to_float8_cpu(Call& call) { quantize_float8_cpu(to_float8(call), torch_parallel); }

}  // namespace
}  // namespace mixed_gemm::quantize

MIXED_GEMM_KERNELS(CPU, m) {
  using namespace mixed_gemm;
  m.impl("quantize_per_token", &boxed<contract::kQuantizePerToken, quantize::per_token_cpu>);
  m.impl("quantize_fp8", &boxed<contract::kQuantizeFp8, quantize::to_float8_cpu>);
  m.impl("quantize_per_tensor", &boxed<contract::kQuantizePerTensor, quantize::per_tensor_cpu>);
}
