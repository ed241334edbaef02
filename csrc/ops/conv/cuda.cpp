// CUDA kernels of the convolutions: checked calls -> pixels in the form that the kernels read ->
// dispatch/ or the library's convolution.
#include "layout/conv_layout.h"
#include "ops/call_aten.h"
#include "ops/conv/contract.h"
#include "ops/cuda_call.h"
#include "ops/dense_cuda.h"
#include "transform/launchers.h"

namespace mixed_gemm::conv {
namespace {

using torch::headeronly::MemoryFormat;

constexpr int64_t kPixelBytes = 16;  // cp.async moves 16 bytes

// Views [N, C, H, W] as [N, H, W, C] on the same memory.
Tensor channels_inner(const Tensor& images) {
  return torch::stable::transpose(torch::stable::transpose(images, 1, 2), 2, 3);
}

void copy_images(const CudaCall& cuda, const ConvShape& extents, int element_bytes,
                 const Tensor& from, const Tensor& to, int64_t to_channels) {
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
  args.stream = cuda.stream();
  cuda.require(cuda_status(launch_copy_images(args), "copying images"));
}

// The input as dense channels-last pixels of whole 16 bytes: itself, or a copy.
Tensor as_pixels(const CudaCall& cuda, const Tensor& input, const ConvShape& s, int element_bytes) {
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
  copy_images(cuda, s, element_bytes, input, pixels, channels);
  return pixels;
}

// The tensor into which a kernel writes channels-last rows: the output, or one copied into it.
class RowsOut {
 public:
  RowsOut(const CudaCall& cuda, Tensor d, const ConvShape& s, bool d_channels_last,
          int element_bytes)
      : cuda_(cuda), d_(std::move(d)), shape_(s), element_bytes_(element_bytes) {
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
    copy_images(cuda_, out, element_bytes_, images, d_, out.in_c);
    return d_;
  }

 private:
  const CudaCall& cuda_;
  Tensor d_, rows_;
  ConvShape shape_;
  int element_bytes_;
  bool direct_;
};

// The filter [Co, Ci, Kh, Kw] in the element type, channels-last.
Tensor dense_filter(const CudaCall& cuda, const ConvProblem& p, ScalarType type) {
  const int64_t channels = channels_per_tap(p.shape.in_c), k = conv_k(p.shape.in_c, p.shape.taps());
  Tensor filter = cuda.empty({p.shape.out_c, p.shape.kernel_h, p.shape.kernel_w, channels}, type);
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
  args.stream = cuda.stream();
  cuda.require(cuda_status(launch_dequantize(args), "dequantizing"));
  const Tensor real = torch::stable::narrow(filter, 3, 0, p.shape.in_c);
  return torch::stable::transpose(torch::stable::transpose(real, 2, 3), 1, 2);
}

// Runs the library's convolution; float32 with TF32 where torch allows it for convolutions.
Tensor run_dense(const CudaCall& cuda, const Call& call, const ConvProblem& p) {
  const ConvShape& s = p.shape;
  const std::vector<int64_t> stride = {s.stride_h, s.stride_w},
                             padding = {s.padding_h, s.padding_w},
                             dilation = {s.dilation_h, s.dilation_w}, no_padding = {0, 0};
  Tensor sums = call_aten("aten::convolution", "", call.tensor(kInput),
                          dense_filter(cuda, p, call.scalar_type(kInput)), std::optional<Tensor>(),
                          stride, padding, dilation, false, no_padding, int64_t{1});
  const auto format = p.d_channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
  if (p.element != ElementType::kFloat32) {  // why_not_dense: at most a relu is left to do
    sums = torch::stable::contiguous(sums, format);
    if (p.activation == Activation::kRelu) call_aten("aten::relu_", "", sums);
    return sums;
  }
  sums = torch::stable::contiguous(sums, MemoryFormat::ChannelsLast);
  const RowsOut out(cuda, call.result(0), s, p.d_channels_last, 4);
  GemmProblem finish = gemm_of(p);
  finish.bias = p.bias;
  finish.d = out.data();
  cuda.require(
      finish_dense(finish, static_cast<const float*>(sums.const_data_ptr()), 1, cuda.stream()));
  return out.finish();
}

// Nothing has to be gathered: the fpA_intB GEMM of pixels and filter.
Tensor run_pointwise(CudaCall& cuda, const Call& call, const ConvProblem& p) {
  const ConvShape& s = p.shape;
  const Tensor pixels = as_pixels(cuda, call.tensor(kInput), s, 2);
  const RowsOut out(cuda, call.result(0), s, p.d_channels_last, 2);
  GemmProblem gemm = pointwise_gemm_of(p);
  gemm.a = pixels.const_data_ptr();
  gemm.a_stride = round_up(s.in_c, 8);
  gemm.b_packed = p.weight_packed;
  gemm.scales = p.scales;
  gemm.zeros = p.offsets;
  gemm.scale_stride = p.scale_stride;
  gemm.bias = p.bias;
  gemm.d = out.data();
  RunContext context = cuda.context();
  context.dense = [&] {
    Tensor padded = torch::stable::reshape(channels_inner(pixels), {s.rows(), gemm.a_stride});
    const Tensor rows = torch::stable::narrow(padded, 1, 0, s.in_c);
    Tensor d = out.matrix();
    return run_dequantize_dense(gemm, rows, {}, d, cuda.stream());
  };
  cuda.require(run(cuda.chosen(gemm, ""), gemm, context));
  return out.finish();
}

// Makes a problem on channels-last pixels of whole 16 bytes, and its output channels-last, as the
// kernels of both convolutions take it.
template <typename Problem>
Problem on_pixels(Problem p, const Tensor& pixels, const RowsOut& out, int64_t channels) {
  p.input = static_cast<decltype(p.input)>(pixels.const_data_ptr());
  p.input_strides.w = channels;
  p.d = static_cast<decltype(p.d)>(out.data());
  return p;
}

// config empty: dispatch/select.h chooses.
void run_named(Call& call, const std::string& config) {
  const ConvProblem p = problem_of(call);
  CudaCall cuda(call);
  const ConvShape& s = p.shape;
  if (s.rows() == 0) return;
  const Choice choice = cuda.chosen(p, config);
  RunContext context = cuda.context();
  context.dense = [&] {
    call.give(0, run_dense(cuda, call, p));
    return Status();
  };
  context.pointwise = [&] {
    call.give(0, run_pointwise(cuda, call, p));
    return Status();
  };
  if (!family_of<ConvProblem>(choice).tile) {  // these two bring their own pixels about
    cuda.require(run(choice, p, context));
    return;
  }
  const Tensor pixels = as_pixels(cuda, call.tensor(kInput), s, 2);
  const RowsOut out(cuda, call.result(0), s, p.d_channels_last, 2);
  cuda.require(run(choice, on_pixels(p, pixels, out, round_up(s.in_c, 8)), context));
  out.finish();
}

void run_int8_named(Call& call, const std::string& config) {
  const ConvInt8Problem p = int8_problem_of(call);
  CudaCall cuda(call);
  const ConvShape& s = p.shape;
  if (s.rows() == 0) return;
  const Choice choice = cuda.chosen(p, config);
  const Tensor pixels = as_pixels(cuda, call.tensor(kInput), s, 1);
  const RowsOut out(cuda, call.result(0), s, p.d_channels_last, 1);
  cuda.require(
      run(choice, on_pixels(p, pixels, out, round_up(s.in_c, kPixelBytes)), cuda.context()));
  out.finish();
}

std::string config_of(const Call& call, const char* op, int at) {
  const std::string config = call.text(at);
  MIXED_GEMM_CHECK(kValue, !config.empty(), op, "config is empty");
  return config;
}

void run_cuda(Call& call) { run_named(call, ""); }
void run_forced_cuda(Call& call) { run_named(call, config_of(call, "_qconv2d_config", kConfig)); }
void run_int8_cuda(Call& call) { run_int8_named(call, ""); }
void run_int8_forced_cuda(Call& call) {
  run_int8_named(call, config_of(call, "_qconv2d_int8_config", kInt8Config));
}

// The names of all candidates, the least predicted time first, a line each.
template <typename Problem>
void print_names(Call& call, const Problem& problem) {
  std::string lines;
  for (const Choice& c : ranked(problem, CudaCall(call).info())) {
    lines += config_name<Problem>(c) + "\n";
  }
  call.print(lines);
}
void print_names_cuda(Call& call) { print_names(call, problem_of(call)); }
void print_int8_names_cuda(Call& call) { print_names(call, int8_problem_of(call)); }

}  // namespace
}  // namespace mixed_gemm::conv

MIXED_GEMM_KERNELS(CUDA, m) {
  using namespace mixed_gemm;
  m.impl("qconv2d", &boxed<contract::kQconv2d, conv::run_cuda>);
  m.impl("_qconv2d_config", &boxed<contract::kQconv2dConfig, conv::run_forced_cuda>);
  m.impl("_qconv2d_configs", &boxed<contract::kQconv2dConfigs, conv::print_names_cuda>);
  m.impl("qconv2d_int8", &boxed<contract::kQconv2dInt8, conv::run_int8_cuda>);
  m.impl("_qconv2d_int8_config", &boxed<contract::kQconv2dInt8Config, conv::run_int8_forced_cuda>);
  m.impl("_qconv2d_int8_configs",
         &boxed<contract::kQconv2dInt8Configs, conv::print_int8_names_cuda>);
}
