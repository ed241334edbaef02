// CPU side of the convolutions: checked tensors -> cpu/.
#include "cpu/conv/conv_cpu.h"
#include "ops/conv/checks.h"

namespace mixed_gemm {
namespace {

// The kernels read whole pixels: an NCHW input is reordered once, not once for every tap.
template <typename Checked>
void make_channels_neighbours(Checked& checked) {
  auto& p = checked.problem;
  if (p.shape.in_c == 1 || p.input_strides.c == 1) return;
  checked.input =
      torch::stable::contiguous(checked.input, torch::headeronly::MemoryFormat::ChannelsLast);
  p.input = static_cast<decltype(p.input)>(checked.input.const_data_ptr());
  p.input_strides = {checked.input.stride(0), checked.input.stride(1), checked.input.stride(2),
                     checked.input.stride(3)};
}

Tensor qconv2d_cpu(const Tensor& input, const Tensor& weight_packed, const Tensor& scales,
                   std::optional<Tensor> offsets, std::optional<Tensor> bias, int64_t bits,
                   int64_t block_size, std::vector<int64_t> kernel_size,
                   std::vector<int64_t> stride, std::vector<int64_t> padding,
                   std::vector<int64_t> dilation, std::string activation) {
  CheckedConv checked =
      check_qconv2d({input, weight_packed, scales, offsets, bias, bits, block_size, kernel_size,
                     stride, padding, dilation, activation});
  make_channels_neighbours(checked);
  conv_cpu(checked.problem, torch_parallel);
  return checked.d;
}

Tensor qconv2d_int8_cpu(const Tensor& input, const Tensor& weight, const Tensor& weight_scale,
                        std::optional<Tensor> bias, std::optional<Tensor> weight_sums,
                        double input_scale, int64_t input_zero_point, double output_scale,
                        int64_t output_zero_point, int64_t clamp_min, int64_t clamp_max,
                        std::vector<int64_t> stride, std::vector<int64_t> padding,
                        std::vector<int64_t> dilation) {
  CheckedConvInt8 checked = check_qconv2d_int8(
      {input, weight, weight_scale, bias, weight_sums, input_scale, input_zero_point, output_scale,
       output_zero_point, clamp_min, clamp_max, stride, padding, dilation});
  make_channels_neighbours(checked);
  conv_int8_cpu(checked.problem, torch_parallel);
  return checked.d;
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CPU, m) {
  m.impl("qconv2d", TORCH_BOX(&mixed_gemm::qconv2d_cpu));
  m.impl("qconv2d_int8", TORCH_BOX(&mixed_gemm::qconv2d_int8_cpu));
}
