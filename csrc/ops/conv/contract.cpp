#include "ops/conv/contract.h"

#include "layout/conv_layout.h"
#include "ops/host_values.h"
#include "problem/integer_bits.h"

namespace mixed_gemm::conv {
namespace {

using namespace contract;

enum : int {
  kPacked = 1,
  kScales,
  kOffsets,
  kBias,
  kBits,
  kBlock,
  kKernel,
  kStride,
  kActivation = 11
};
enum : int {
  kWeight = 1,
  kWeightScale,
  kInt8Bias,
  kSums,
  kInputScale,
  kInputZero,
  kOutputScale,
  kOutputZero,
  kClampMin,
  kClampMax,
  kInt8Stride,
};
enum : int { kFilterBits = 1, kFilterCheck };

constexpr const char *kImages = "(N, Ci, H, W)", *kFilter = "(Co, Ci, Kh, Kw)";

std::optional<Refusal> refusal_of(const std::string& reason) {
  if (reason.empty()) return {};
  return Refusal{ErrorKind::kValue, reason};
}

// kernel: height and width. The settings stand from `stride` on: stride, padding, dilation.
ConvShape shape_of(const Given& given, int64_t out_c, const int64_t* kernel, int stride_at) {
  const int64_t *image = given.views[kInput].sizes, *stride = given.lists[stride_at],
                *padding = given.lists[stride_at + 1], *dilation = given.lists[stride_at + 2];
  ConvShape s;
  s.images = image[0], s.in_c = image[1], s.in_h = image[2], s.in_w = image[3];
  s.out_c = out_c;
  s.kernel_h = kernel[0], s.kernel_w = kernel[1];
  s.stride_h = stride[0], s.stride_w = stride[1];
  s.padding_h = padding[0], s.padding_w = padding[1];
  s.dilation_h = dilation[0], s.dilation_w = dilation[1];
  if (s.stride_h > 0 && s.stride_w > 0) {  // else refused
    s.out_h = conv_out_extent(s.in_h, s.kernel_h, s.stride_h, s.padding_h, s.dilation_h);
    s.out_w = conv_out_extent(s.in_w, s.kernel_w, s.stride_w, s.padding_w, s.dilation_w);
  }
  return s;
}

// ---- qconv2d
// -------------------------------------------------------------------------------------

ConvShape shape_of(const Given& given) {
  return shape_of(given, given.views[kScales].sizes[1], given.lists[kKernel], kStride);
}

std::optional<Refusal> refuse_conv(Given& given) {
  const std::string wrong_bits = why_not_bits(given[Bits]);
  return refusal_of(wrong_bits.empty() ? why_not_conv(shape_of(given), given[BlockSize])
                                       : wrong_bits);
}

std::optional<Refusal> refuse_packed(Given& given) {
  const ConvShape s = shape_of(given);
  const View& packed = given.views[kPacked];
  const int64_t bits = given[Bits], k = conv_k(s.in_c, s.taps());
  const int64_t expected[] = {round_up(s.out_c, kPadN), round_up(k, kPadK) * bits / 8};
  if (packed.dims == 2 && packed.sizes[0] == expected[0] && packed.sizes[1] == expected[1]) {
    return {};
  }
  return value_fault(
      {"weight_packed",
       "be (round_up(Co, 64), round_up(K, 64) * bits / 8) = " + sizes_text(expected, 2),
       sizes_text(packed.sizes, packed.dims),
       joined("Co=", s.out_c, " from scales, Ci=", s.in_c, " from input, K=", k, " = ", s.kernel_h,
              " * ", s.kernel_w, " * ", channels_per_tap(s.in_c), " (Ci padded), bits=", bits)});
}

constexpr Rule by_block(const char* name) {
  return shape(name, {groups(Ci, BlockSize), Co}).because_of({Ci, BlockSize}).may_be_transposed();
}

constexpr Argument kArguments[] = {tensor("input"),
                                   tensor("weight_packed"),
                                   tensor("scales"),
                                   optional_tensor("offsets"),
                                   optional_tensor("bias"),
                                   integer("bits").keyword().binds(Bits),
                                   integer("block_size", "-1").keyword().binds(BlockSize),
                                   pair("kernel_size").keyword(),
                                   pair("stride", "1").keyword(),
                                   pair("padding", "0").keyword(),
                                   pair("dilation", "1").keyword(),
                                   text("activation", "\"identity\"").keyword()};
constexpr auto kForcedArguments = with_config(kArguments);
constexpr auto kRules = placed(
    kArguments, {rank("input", 4, kImages),
                 rank("scales", 2),
                 floats("input").with_hint("input.to(scales.dtype)"),
                 two("kernel_size"),
                 two("stride"),
                 two("padding"),
                 two("dilation"),
                 bind(Ci, "input", 1),
                 bind(Co, "scales", 1),
                 require(refuse_conv),
                 choice("activation", kActivationNames),
                 whole(BlockSize, Ci),
                 same_dtype("scales", "input").with_hint("scales.to(input.dtype)"),
                 by_block("scales"),
                 same_dtype("offsets", "input"),
                 by_block("offsets"),
                 dtype("weight_packed", Dtype::kUint8, " (from mixed_gemm.pack_conv_weights)"),
                 require(refuse_packed),
                 same_dtype("bias", "input"),
                 shape("bias", {Co})});
constexpr Result kResults[] = {made()};
constexpr Result kNames[] = {printed()};

// ---- qconv2d_int8
// --------------------------------------------------------------------------------

ConvShape int8_shape_of(const Given& given) {
  const int64_t* weight = given.views[kWeight].sizes;
  return shape_of(given, weight[0], weight + 2, kInt8Stride);
}

std::optional<Refusal> refuse_channels(Given& given) {
  const View& weight = given.views[kWeight];
  if (weight.sizes[1] == given[Ci]) return {};
  return value_fault({"weight", joined("be ", kFilter, " with Ci=", given[Ci], " of input"),
                      sizes_text(weight.sizes, weight.dims), "", "groups are not supported"});
}

std::optional<Refusal> refuse_conv_int8(Given& given) {
  return refusal_of(why_not_conv_int8(int8_shape_of(given)));
}

std::optional<Refusal> refuse_clamp(Given& given) {
  const int64_t least = given.numbers[kClampMin], most = given.numbers[kClampMax];
  if (least <= most) return {};
  return value_fault({"clamp_min", "not be above clamp_max", joined(least, " and ", most)});
}

constexpr Rule int8(const char* name) { return range(name, -128, 127); }

// weight_sums: of the integers of the weight, computed once and trusted. After bias and not
// keyword-only, where torch's vmap takes no tensors.
constexpr Argument kInt8Arguments[] = {tensor("input"),
                                       tensor("weight"),
                                       tensor("weight_scale"),
                                       optional_tensor("bias"),
                                       optional_tensor("weight_sums"),
                                       real("input_scale").keyword(),
                                       integer("input_zero_point").keyword(),
                                       real("output_scale").keyword(),
                                       integer("output_zero_point").keyword(),
                                       integer("clamp_min", "-128").keyword(),
                                       integer("clamp_max", "127").keyword(),
                                       pair("stride", "1").keyword(),
                                       pair("padding", "0").keyword(),
                                       pair("dilation", "1").keyword()};
constexpr auto kInt8ForcedArguments = with_config(kInt8Arguments);
constexpr auto kInt8Rules =
    placed(kInt8Arguments, {rank("input", 4, kImages),
                            rank("weight", 4, kFilter),
                            dtype("input", Dtype::kInt8).with_hint("quantize_per_tensor makes it"),
                            dtype("weight", Dtype::kInt8, " (not packed)"),
                            bind(Ci, "input", 1),
                            bind(Co, "weight", 0),
                            require(refuse_channels),
                            two("stride"),
                            two("padding"),
                            two("dilation"),
                            require(refuse_conv_int8),
                            positive("input_scale"),
                            positive("output_scale"),
                            int8("input_zero_point"),
                            int8("output_zero_point"),
                            int8("clamp_min"),
                            int8("clamp_max"),
                            require(refuse_clamp),
                            dtype("weight_scale", Dtype::kFloat32),
                            shape("weight_scale", {Co}).or_one(),
                            dtype("bias", Dtype::kFloat32),
                            shape("bias", {Co}),
                            dtype("weight_sums", Dtype::kInt32),
                            shape("weight_sums", {Co})});

// ---- pack_conv_weights
// ---------------------------------------------------------------------------

std::optional<Refusal> refuse_filter(Given& given) {
  const View& q = given.views[kInput];
  if (q.elements() == 0) return value_fault({"q", "not be empty", sizes_text(q.sizes, q.dims)});
  ConvShape filter;  // what depends on the filter alone: seen by an image that it just covers
  filter.out_c = q.sizes[0];
  filter.in_c = q.sizes[1];
  filter.in_h = filter.kernel_h = q.sizes[2];
  filter.in_w = filter.kernel_w = q.sizes[3];
  filter.out_h = filter.out_w = 1;
  const std::string wrong_bits = why_not_bits(given[Bits]);
  return refusal_of(wrong_bits.empty() ? why_not_conv(filter, -1) : wrong_bits);
}

// A filter [Co, Ci, Kh, Kw] as a packed weight (layout/conv_layout.h); scales and offsets are
// [ceil(Ci / block_size), Co], shared over the taps: w = q * scale + offset.
constexpr Argument kPackArguments[] = {tensor("q"), integer("bits").binds(Bits),
                                       boolean("check", "False").keyword()};
constexpr auto kPackRules = placed(
    kPackArguments, {dtype("q", Dtype::kInt8, " (signed values)").with_hint("q.to(torch.int8)"),
                     rank("q", 4, kFilter), require(refuse_filter)});

// ---- problems
// ------------------------------------------------------------------------------------

// The rule of torch itself (c10::is_channels_last_strides_2d), because the output follows the input
// as torch's does.
bool is_channels_last(const View& t) {
  int64_t least = 0;
  if (t.strides[1] == 0) return false;
  for (const int dim : {1, 3, 2, 0}) {
    const int64_t size = t.sizes[dim], stride = t.strides[dim];
    if (size == 0 || stride < least) return false;
    if (dim == 0 && least == t.strides[1]) return false;  // [N, 1, 1, 1]: ambiguous, so NCHW
    least = size > 1 ? stride * size : stride;
  }
  return true;
}

template <typename Problem>
void make_images(Call& call, Problem& p) {
  const ConvShape& s = p.shape;
  const View& input = call.view(kInput);
  const int64_t sizes[] = {s.images, s.out_c, s.out_h, s.out_w};
  int64_t strides[] = {s.out_h * s.out_w * s.out_c, 1, s.out_w * s.out_c, s.out_c};
  p.d_channels_last = is_channels_last(input);
  if (!p.d_channels_last) set_contiguous_strides(sizes, 4, strides);
  const Tensor d = empty_strided_on(call.device_type(kInput), input.index, sizes, strides, 4,
                                    call.scalar_type(kInput));
  p.d_strides = {strides[0], strides[1], strides[2], strides[3]};
  p.d = static_cast<decltype(p.d)>(d.mutable_data_ptr());
  call.give(0, d);
}

}  // namespace

ImageStrides strides_of(const View& t) {
  return {t.strides[0], t.strides[1], t.strides[2], t.strides[3]};
}

ConvProblem problem_of(Call& call) {
  ConvProblem p;
  p.shape = shape_of(call.given());
  p.element = call.element(kInput);
  p.weight = *integer_weight(call[Bits]);
  p.block_size = call[BlockSize];
  p.activation = static_cast<Activation>(call.number(kActivation));
  p.scale_stride = call.matrices(kScales, kOffsets);
  p.scales = call.data(kScales);
  p.offsets = call.data(kOffsets);
  p.weight_packed = static_cast<const uint8_t*>(call.aligned(kPacked, 16));
  p.bias = call.contiguous(kBias);
  p.input = call.data(kInput);
  p.input_strides = strides_of(call.view(kInput));
  if (!call.returns_text()) make_images(call, p);
  return p;
}

ConvInt8Problem int8_problem_of(Call& call) {
  ConvInt8Problem p;
  p.shape = int8_shape_of(call.given());
  p.input_scale = call.real(kInputScale);
  p.output_scale = call.real(kOutputScale);
  p.input_zero_point = static_cast<int32_t>(call.number(kInputZero));
  p.output_zero_point = static_cast<int32_t>(call.number(kOutputZero));
  p.clamp_min = static_cast<int32_t>(call.number(kClampMin));
  p.clamp_max = static_cast<int32_t>(call.number(kClampMax));
  const View& scale = call.view(kWeightScale);
  p.weight_scale_stride = scale.elements() == 1 && scale.dims <= 1 ? 0 : 1;
  p.weight_scale = static_cast<const float*>(call.elements(kWeightScale));
  p.bias = static_cast<const float*>(call.elements(kInt8Bias));
  p.weight_sums = static_cast<const int32_t*>(call.elements(kSums));
  p.input = static_cast<const int8_t*>(call.data(kInput));
  p.input_strides = strides_of(call.view(kInput));
  p.weight = static_cast<const int8_t*>(call.channels_last(kWeight));
  if (!call.returns_text()) make_images(call, p);
  return p;
}

Tensor filter_matrix(const Call& call) {
  const Tensor q = call.tensor(kInput);
  if (call.number(kFilterCheck) != 0 || q.is_cpu()) check_range(call.op(), "q", q, call[Bits]);
  const int64_t out_c = q.size(0), in_c = q.size(1), taps = q.size(2) * q.size(3);
  const int64_t channels = channels_per_tap(in_c);
  const Tensor by_tap =
      torch::stable::transpose(torch::stable::reshape(q, {out_c, in_c, taps}), 1, 2);
  Tensor padded = torch::stable::new_zeros(q, {out_c, taps, channels});
  Tensor real = torch::stable::narrow(padded, 2, 0, in_c);
  torch::stable::copy_(real, by_tap);
  return torch::stable::view(padded, {out_c, taps * channels});
}

}  // namespace mixed_gemm::conv

namespace mixed_gemm::contract {

constexpr Contract kQconv2d = {"qconv2d",      conv::kArguments, conv::kRules,
                               conv::kResults, nullptr,          true};
constexpr Contract kQconv2dConfig = {"_qconv2d_config", conv::kForcedArguments.items, conv::kRules,
                                     conv::kResults, "qconv2d"};
constexpr Contract kQconv2dConfigs = {"_qconv2d_configs", conv::kArguments, conv::kRules,
                                      conv::kNames, "qconv2d"};
constexpr Contract kQconv2dInt8 = {
    "qconv2d_int8", conv::kInt8Arguments, conv::kInt8Rules, conv::kResults, nullptr, true};
constexpr Contract kQconv2dInt8Config = {"_qconv2d_int8_config", conv::kInt8ForcedArguments.items,
                                         conv::kInt8Rules, conv::kResults, "qconv2d_int8"};
constexpr Contract kQconv2dInt8Configs = {"_qconv2d_int8_configs", conv::kInt8Arguments,
                                          conv::kInt8Rules, conv::kNames, "qconv2d_int8"};
constexpr Contract kPackConvWeights = {"pack_conv_weights", conv::kPackArguments, conv::kPackRules,
                                       conv::kResults};

}  // namespace mixed_gemm::contract
