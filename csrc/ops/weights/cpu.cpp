// CPU kernels of the ops on weights: packing, unpacking, dequantizing.
#include "cpu/gemm/gemm_cpu.h"
#include "layout/pack_weight.h"
#include "layout/weight_layout.h"
#include "ops/gemm/checks.h"

namespace mixed_gemm {
namespace {

Tensor pack_weights_cpu(const Tensor& q, int64_t bits, bool check) {
  const Tensor values = check_quantized(q, bits, check);
  const int64_t n = values.size(0), k = values.size(1);
  Tensor packed =
      empty_on(values, {round_up(n, kPadN), round_up(k, kPadK) * bits / 8}, ScalarType::Byte);
  pack_weight(*integer_weight(bits), static_cast<const int8_t*>(values.const_data_ptr()), k, n, k,
              static_cast<uint8_t*>(packed.mutable_data_ptr()), torch_parallel);
  return packed;
}

Tensor unpack_weights_cpu(const Tensor& b_packed, int64_t bits, int64_t n, int64_t k) {
  const Tensor packed = check_unpack(b_packed, bits, n, k);
  Tensor q = empty_on(packed, {n, k}, ScalarType::Char);
  unpack_weight(*integer_weight(bits), static_cast<const uint8_t*>(packed.const_data_ptr()), n, k,
                static_cast<int8_t*>(q.mutable_data_ptr()), torch_parallel);
  return q;
}

Tensor dequantize_weights_cpu(const Tensor& b_packed, const Tensor& scales,
                              std::optional<Tensor> zeros, int64_t bits, int64_t group_size,
                              std::string zero_mode, int64_t n, int64_t k, int32_t dtype) {
  CheckedDequantize checked =
      check_dequantize(b_packed, scales, zeros, bits, group_size, zero_mode, n, k, dtype_of(dtype));
  GemmProblem& problem = checked.weight.problem;
  Tensor out = empty_on(scales, {n, k}, dtype_of(dtype));
  problem.d = out.mutable_data_ptr();
  dequantize_cpu(problem, checked.out, torch_parallel);
  return out;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("pack_weights", TORCH_BOX(&mixed_gemm::pack_weights_cpu));
  m.impl("unpack_weights", TORCH_BOX(&mixed_gemm::unpack_weights_cpu));
  m.impl("dequantize_weights", TORCH_BOX(&mixed_gemm::dequantize_weights_cpu));
}
