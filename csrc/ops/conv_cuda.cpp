// CUDA side of the convolutions and of the block GEMM. Their kernels are not written yet: a checked
// call ends in an error that names what is missing.
#include "ops/block_gemm_checks.h"
#include "ops/conv_checks.h"

namespace mixed_gemm {
namespace {

Tensor not_on_cuda(const char* op, const char* kernel) {
  STD_TORCH_CHECK(false, "mixed_gemm::", op, ": not implemented for CUDA tensors: ", kernel,
                  " is missing from this version. Hint: move the tensors to the CPU");
  return {};
}

Tensor qconv2d_cuda(const Tensor& input, const Tensor& weight_packed, const Tensor& scales,
                    std::optional<Tensor> offsets, std::optional<Tensor> bias, int64_t bits,
                    int64_t block_size, std::vector<int64_t> kernel_size,
                    std::vector<int64_t> stride, std::vector<int64_t> padding,
                    std::vector<int64_t> dilation, std::string activation) {
  check_qconv2d({input, weight_packed, scales, offsets, bias, bits, block_size, kernel_size, stride,
                 padding, dilation, activation});
  return not_on_cuda("qconv2d", "the implicit GEMM kernel");
}

Tensor qconv2d_int8_cuda(const Tensor& input, const Tensor& weight, const Tensor& weight_scale,
                         std::optional<Tensor> bias, double input_scale, int64_t input_zero_point,
                         double output_scale, int64_t output_zero_point, int64_t clamp_min,
                         int64_t clamp_max, std::vector<int64_t> stride,
                         std::vector<int64_t> padding, std::vector<int64_t> dilation) {
  check_qconv2d_int8({input, weight, weight_scale, bias, input_scale, input_zero_point,
                      output_scale, output_zero_point, clamp_min, clamp_max, stride, padding,
                      dilation});
  return not_on_cuda("qconv2d_int8", "the int8 implicit GEMM kernel");
}

Tensor block_quant_gemm_cuda(const Tensor& a, const Tensor& b, const Tensor& scale_b,
                             const Tensor& offset_b, std::optional<Tensor> bias, int64_t block_size,
                             std::string activation) {
  check_block_quant_gemm({a, b, scale_b, offset_b, bias, block_size, activation});
  return not_on_cuda("block_quant_gemm", "the quantizer per block and its int8 GEMM");
}

}  // namespace
}  // namespace mixed_gemm

STABLE_TORCH_LIBRARY_IMPL(mixed_gemm, CUDA, m) {
  m.impl("qconv2d", TORCH_BOX(&mixed_gemm::qconv2d_cuda));
  m.impl("qconv2d_int8", TORCH_BOX(&mixed_gemm::qconv2d_int8_cuda));
  m.impl("block_quant_gemm", TORCH_BOX(&mixed_gemm::block_quant_gemm_cuda));
}
