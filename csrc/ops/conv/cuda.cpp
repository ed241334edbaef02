// CUDA kernels of the convolutions: checked tensors -> pixels in the form that the kernels read ->
// dispatch/ or the library's convolution.
#include "layout/conv_layout.h"
#include "ops/call_aten.h"
#include "ops/conv/checks.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "transform/launchers.h"

namespace mixed_gemm {
namespace {

using torch::headeronly::MemoryFormat;

constexpr int64_t kPixelBytes = 16;  // cp.async moves 16 bytes

// [N, C, H, W] -> [N, H, W, C] on the same memory.
Tensor channels_inner(const Tensor& images) {
  return torch::stable::transpose(torch::stable::transpose(images, 1, 2), 2, 3);
}

void copy_images(const Call& call, const ConvShape& extents, int element_bytes, const Tensor& from,
                 const Tensor& to, int64_t to_channels) {
  const auto strides = [](const Tensor& t) {
    return ImageStrides{t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
  };
  CopyImagesArgs args;
  args.element_bytes = element_bytes;
  args.images = extents.images;
  args.channels = extents.in_c;
  args.dst_channels = to_channels;
  args.h = extents.in_h;
  args.w = extents.in_w;
  args.src = from.const_data_ptr();
  args.src_strides = strides(from);
  args.dst = to.mutable_data_ptr();
  args.dst_strides = strides(to);
  args.stream = call.stream();
  call.require(cuda_status(launch_copy_images(args), "copying images"));
}

// The input as dense channels-last pixels of whole 16 bytes: itself, or a copy.
Tensor as_pixels(const Call& call, const Tensor& input, const ConvShape& s, int element_bytes) {
  const int64_t channels = round_up(s.in_c, kPixelBytes / element_bytes);
  const auto steps = [&input](int dim, int64_t by) {  // of a single one it does not matter
    return input.size(dim) == 1 || input.stride(dim) == by;
  };
  const bool dense = channels == s.in_c && steps(1, 1) && steps(3, channels) &&
                     steps(2, channels * s.in_w) && steps(0, channels * s.in_w * s.in_h);
  if (dense && reinterpret_cast<uintptr_t>(input.const_data_ptr()) % kPixelBytes == 0) return input;
  const std::vector<int64_t> sizes = {s.images, channels, s.in_h, s.in_w};
  Tensor pixels = torch::stable::empty(sizes, input.scalar_type(), {}, input.device(), {},
                                       MemoryFormat::ChannelsLast);
  copy_images(call, s, element_bytes, input, pixels, channels);
  return pixels;
}

// Where a kernel writes channels-last rows: the output itself, or a tensor that is copied into it.
class RowsOut {
 public:
  RowsOut(const Call& call, Tensor d, const ConvShape& s, bool d_channels_last, int element_bytes)
      : call_(call), d_(std::move(d)), shape_(s), element_bytes_(element_bytes) {
    const std::vector<int64_t> sizes = {s.images, s.out_h, s.out_w, s.out_c};
    rows_ = d_channels_last ? channels_inner(d_) : empty_on(d_, sizes);
    direct_ = d_channels_last;
  }
  void* data() const { return rows_.mutable_data_ptr(); }
  Tensor matrix() const { return torch::stable::view(rows_, {shape_.rows(), shape_.out_c}); }
  Tensor finish() const {
    if (direct_) return d_;
    ConvShape out = shape_;
    out.in_c = shape_.out_c;
    out.in_h = shape_.out_h;
    out.in_w = shape_.out_w;
    const Tensor images = torch::stable::transpose(torch::stable::transpose(rows_, 2, 3), 1, 2);
    copy_images(call_, out, element_bytes_, images, d_, out.in_c);
    return d_;
  }

 private:
  const Call& call_;
  Tensor d_, rows_;
  ConvShape shape_;
  int element_bytes_;
  bool direct_;
};

// The filter [Co, Ci, Kh, Kw] in the element type, channels-last.
Tensor dense_filter(const Call& call, const CheckedConv& checked) {
  const ConvProblem& p = checked.problem;
  const int64_t channels = channels_per_tap(p.shape.in_c), k = conv_k(p.shape.in_c, p.shape.taps());
  Tensor filter =
      empty_on(checked.input, {p.shape.out_c, p.shape.kernel_h, p.shape.kernel_w, channels});
  DequantizeArgs args;
  args.scheme = integer_scheme(p.weight, p.block_size,
                               p.offsets == nullptr ? ZeroMode::kNone : ZeroMode::kAdd);
  args.n = p.shape.out_c;
  args.k = k;
  args.b_packed = p.weight_packed;
  args.scale_type = args.out_type = p.element;
  args.scales = p.scales;
  args.zeros = p.offsets;
  args.scale_stride = p.scale_stride;
  args.groups = p.blocks();
  args.k_period = channels;
  args.out = filter.mutable_data_ptr();
  args.stream = call.stream();
  call.require(cuda_status(launch_dequantize(args), "dequantizing"));
  const Tensor real = torch::stable::narrow(filter, 3, 0, p.shape.in_c);
  return torch::stable::transpose(torch::stable::transpose(real, 2, 3), 1, 2);
}

// The library's convolution; float32: with TF32 where torch allows it for convolutions.
Tensor run_dense(const Call& call, const CheckedConv& checked) {
  const ConvProblem& p = checked.problem;
  const ConvShape& s = p.shape;
  const std::vector<int64_t> stride = {s.stride_h, s.stride_w},
                             padding = {s.padding_h, s.padding_w},
                             dilation = {s.dilation_h, s.dilation_w}, no_padding = {0, 0};
  Tensor sums =
      call_aten("aten::convolution", "", checked.input, dense_filter(call, checked),
                std::optional<Tensor>(), stride, padding, dilation, false, no_padding, int64_t{1});
  const auto format = p.d_channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
  if (p.element != ElementType::kFloat32) {  // why_not_dense: at most a relu is left to do
    sums = torch::stable::contiguous(sums, format);
    if (p.activation == Activation::kRelu) call_aten("aten::relu_", "", sums);
    return sums;
  }
  sums = torch::stable::contiguous(sums, MemoryFormat::ChannelsLast);
  const RowsOut out(call, checked.d, s, p.d_channels_last, 4);
  GemmProblem finish = gemm_of(p);
  finish.bias = p.bias;
  finish.d = out.data();
  call.require(
      finish_dense(finish, static_cast<const float*>(sums.const_data_ptr()), 1, call.stream()));
  return out.finish();
}

// Nothing has to be gathered: the fpA_intB GEMM of pixels and filter.
Tensor run_pointwise(Call& call, const CheckedConv& checked) {
  const ConvProblem& p = checked.problem;
  const ConvShape& s = p.shape;
  const Tensor pixels = as_pixels(call, checked.input, s, 2);
  const RowsOut out(call, checked.d, s, p.d_channels_last, 2);
  GemmProblem gemm = pointwise_gemm_of(p);
  gemm.a = pixels.const_data_ptr();
  gemm.a_stride = round_up(s.in_c, 8);
  gemm.b_packed = p.weight_packed;
  gemm.scales = p.scales;
  gemm.zeros = p.offsets;
  gemm.scale_stride = p.scale_stride;
  gemm.bias = p.bias;
  gemm.d = out.data();
  RunContext context = call.context();
  context.dense = [&] {
    Tensor padded = torch::stable::reshape(channels_inner(pixels), {s.rows(), gemm.a_stride});
    const Tensor rows = torch::stable::narrow(padded, 1, 0, s.in_c);
    Tensor d = out.matrix();
    return run_dequantize_dense(gemm, rows, {}, d, call.stream());
  };
  call.require(run(call.chosen(gemm, ""), gemm, context));
  return out.finish();
}

// A problem on channels-last pixels of whole 16 bytes, and its output channels-last: what the
// kernels of both convolutions take.
template <typename Problem>
Problem on_pixels(Problem p, const Tensor& pixels, const RowsOut& out, int64_t channels) {
  p.input = static_cast<decltype(p.input)>(pixels.const_data_ptr());
  p.input_strides.w = channels;
  p.d = static_cast<decltype(p.d)>(out.data());
  return p;
}

// config empty: dispatch/select.h chooses.
Tensor qconv2d(const ConvArguments& arguments, const std::string& config) {
  const CheckedConv checked = check_qconv2d(arguments);
  const ConvProblem& p = checked.problem;
  Call call("qconv2d", checked.input);
  Tensor d = checked.d;
  if (d.numel() == 0) return d;
  const Choice choice = call.chosen(p, config);
  RunContext context = call.context();
  context.dense = [&] {
    d = run_dense(call, checked);
    return Status();
  };
  context.pointwise = [&] {
    d = run_pointwise(call, checked);
    return Status();
  };
  if (!family_of<ConvProblem>(choice).tile) {  // these two bring their own pixels about
    call.require(run(choice, p, context));
    return d;
  }
  const Tensor pixels = as_pixels(call, checked.input, p.shape, 2);
  const RowsOut out(call, checked.d, p.shape, p.d_channels_last, 2);
  call.require(run(choice, on_pixels(p, pixels, out, round_up(p.shape.in_c, 8)), context));
  return out.finish();
}

Tensor qconv2d_cuda(const Tensor& input, const Tensor& weight_packed, const Tensor& scales,
                    std::optional<Tensor> offsets, std::optional<Tensor> bias, int64_t bits,
                    int64_t block_size, std::vector<int64_t> kernel_size,
                    std::vector<int64_t> stride, std::vector<int64_t> padding,
                    std::vector<int64_t> dilation, std::string activation) {
  return qconv2d({input, weight_packed, scales, offsets, bias, bits, block_size, kernel_size,
                  stride, padding, dilation, activation},
                 "");
}

Tensor qconv2d_config_cuda(const Tensor& input, const Tensor& weight_packed, const Tensor& scales,
                           std::optional<Tensor> offsets, std::optional<Tensor> bias, int64_t bits,
                           int64_t block_size, std::vector<int64_t> kernel_size,
                           std::vector<int64_t> stride, std::vector<int64_t> padding,
                           std::vector<int64_t> dilation, std::string activation,
                           std::string config) {
  MIXED_GEMM_CHECK(kValue, !config.empty(), "_qconv2d_config", "config is empty");
  return qconv2d({input, weight_packed, scales, offsets, bias, bits, block_size, kernel_size,
                  stride, padding, dilation, activation},
                 config);
}

// Names of all candidates, the least predicted time first, a line each.
template <typename Problem>
std::string lines_of(const Problem& problem, const DeviceInfo& device) {
  std::string lines;
  for (const Choice& c : ranked(problem, device)) lines += config_name<Problem>(c) + "\n";
  return lines;
}

std::string qconv2d_configs_cuda(const Tensor& input, const Tensor& weight_packed,
                                 const Tensor& scales, std::optional<Tensor> offsets,
                                 std::optional<Tensor> bias, int64_t bits, int64_t block_size,
                                 std::vector<int64_t> kernel_size, std::vector<int64_t> stride,
                                 std::vector<int64_t> padding, std::vector<int64_t> dilation,
                                 std::string activation) {
  const CheckedConv checked =
      check_qconv2d({input, weight_packed, scales, offsets, bias, bits, block_size, kernel_size,
                     stride, padding, dilation, activation});
  return lines_of(checked.problem, Call("qconv2d", checked.input).info());
}

Tensor qconv2d_int8(const ConvInt8Arguments& arguments, const std::string& config) {
  const CheckedConvInt8 checked = check_qconv2d_int8(arguments);
  const ConvInt8Problem& p = checked.problem;
  Call call("qconv2d_int8", checked.input);
  if (checked.d.numel() == 0) return checked.d;
  const Choice choice = call.chosen(p, config);
  const Tensor pixels = as_pixels(call, checked.input, p.shape, 1);
  const RowsOut out(call, checked.d, p.shape, p.d_channels_last, 1);
  call.require(
      run(choice, on_pixels(p, pixels, out, round_up(p.shape.in_c, kPixelBytes)), call.context()));
  return out.finish();
}

Tensor qconv2d_int8_cuda(const Tensor& input, const Tensor& weight, const Tensor& weight_scale,
                         std::optional<Tensor> bias, std::optional<Tensor> weight_sums,
                         double input_scale, int64_t input_zero_point, double output_scale,
                         int64_t output_zero_point, int64_t clamp_min, int64_t clamp_max,
                         std::vector<int64_t> stride, std::vector<int64_t> padding,
                         std::vector<int64_t> dilation) {
  return qconv2d_int8(
      {input, weight, weight_scale, bias, weight_sums, input_scale, input_zero_point, output_scale,
       output_zero_point, clamp_min, clamp_max, stride, padding, dilation},
      "");
}

Tensor qconv2d_int8_config_cuda(const Tensor& input, const Tensor& weight,
                                const Tensor& weight_scale, std::optional<Tensor> bias,
                                std::optional<Tensor> weight_sums, double input_scale,
                                int64_t input_zero_point, double output_scale,
                                int64_t output_zero_point, int64_t clamp_min, int64_t clamp_max,
                                std::vector<int64_t> stride, std::vector<int64_t> padding,
                                std::vector<int64_t> dilation, std::string config) {
  MIXED_GEMM_CHECK(kValue, !config.empty(), "_qconv2d_int8_config", "config is empty");
  return qconv2d_int8(
      {input, weight, weight_scale, bias, weight_sums, input_scale, input_zero_point, output_scale,
       output_zero_point, clamp_min, clamp_max, stride, padding, dilation},
      config);
}

std::string qconv2d_int8_configs_cuda(const Tensor& input, const Tensor& weight,
                                      const Tensor& weight_scale, std::optional<Tensor> bias,
                                      std::optional<Tensor> weight_sums, double input_scale,
                                      int64_t input_zero_point, double output_scale,
                                      int64_t output_zero_point, int64_t clamp_min,
                                      int64_t clamp_max, std::vector<int64_t> stride,
                                      std::vector<int64_t> padding, std::vector<int64_t> dilation) {
  const CheckedConvInt8 checked = check_qconv2d_int8(
      {input, weight, weight_scale, bias, weight_sums, input_scale, input_zero_point, output_scale,
       output_zero_point, clamp_min, clamp_max, stride, padding, dilation});
  return lines_of(checked.problem, Call("qconv2d_int8", checked.input).info());
}

}  // namespace
}  // namespace mixed_gemm

MIXED_GEMM_KERNELS(CUDA, m) {
  m.impl("qconv2d", TORCH_BOX(&mixed_gemm::qconv2d_cuda));
  m.impl("_qconv2d_config", TORCH_BOX(&mixed_gemm::qconv2d_config_cuda));
  m.impl("_qconv2d_configs", TORCH_BOX(&mixed_gemm::qconv2d_configs_cuda));
  m.impl("qconv2d_int8", TORCH_BOX(&mixed_gemm::qconv2d_int8_cuda));
  m.impl("_qconv2d_int8_config", TORCH_BOX(&mixed_gemm::qconv2d_int8_config_cuda));
  m.impl("_qconv2d_int8_configs", TORCH_BOX(&mixed_gemm::qconv2d_int8_configs_cuda));
}
