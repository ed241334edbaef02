// CUDA kernels of the ops on weights: packing, unpacking, dequantizing.
#include "layout/weight_layout.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "ops/gemm/checks.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

Tensor pack_weights_cuda(const Tensor& q, int64_t bits, bool check) {
  const Tensor values = check_quantized(q, bits, check);
  Call call("pack_weights", values);
  const int64_t n = values.size(0), k = values.size(1);
  Tensor packed =
      empty_on(values, {round_up(n, kPadN), round_up(k, kPadK) * bits / 8}, ScalarType::Byte);
  PackArgs args;
  args.weight = *integer_weight(bits);
  args.n = n;
  args.k = k;
  args.q = const_cast<int8_t*>(static_cast<const int8_t*>(values.const_data_ptr()));
  args.packed = static_cast<uint8_t*>(packed.mutable_data_ptr());
  args.stream = call.stream();
  if (packed.numel() > 0) call.require(cuda_status(launch_pack(args), "packing"));
  return packed;
}

Tensor unpack_weights_cuda(const Tensor& b_packed, int64_t bits, int64_t n, int64_t k) {
  const Tensor packed = check_unpack(b_packed, bits, n, k);
  Call call("unpack_weights", packed);
  Tensor q = empty_on(packed, {n, k}, ScalarType::Char);
  PackArgs args;
  args.weight = *integer_weight(bits);
  args.n = n;
  args.k = k;
  args.q = static_cast<int8_t*>(q.mutable_data_ptr());
  args.packed = const_cast<uint8_t*>(static_cast<const uint8_t*>(packed.const_data_ptr()));
  args.stream = call.stream();
  if (q.numel() > 0) call.require(cuda_status(launch_unpack(args), "unpacking"));
  return q;
}

Tensor dequantize_weights_cuda(const Tensor& b_packed, const Tensor& scales,
                               std::optional<Tensor> zeros, int64_t bits, int64_t group_size,
                               std::string zero_mode, int64_t n, int64_t k, int32_t dtype) {
  const CheckedDequantize checked =
      check_dequantize(b_packed, scales, zeros, bits, group_size, zero_mode, n, k, dtype_of(dtype));
  Call call("dequantize_weights", checked.weight.b_packed);
  Tensor out = empty_on(scales, {n, k}, dtype_of(dtype));
  if (out.numel() > 0) {
    call.require(dequantize_cuda(checked.weight.problem, checked.out, out.mutable_data_ptr(),
                                 call.stream()));
  }
  return out;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("pack_weights", TORCH_BOX(&mixed_gemm::pack_weights_cuda));
  m.impl("unpack_weights", TORCH_BOX(&mixed_gemm::unpack_weights_cuda));
  m.impl("dequantize_weights", TORCH_BOX(&mixed_gemm::dequantize_weights_cuda));
}
