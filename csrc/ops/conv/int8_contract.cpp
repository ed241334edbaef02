#include "ops/conv/contract.h"

namespace mixed_gemm::conv {
namespace {

using namespace contract;

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

// weight_sums: the sums of the weight's integers, computed once and trusted. It comes after bias
// and is not keyword-only, where torch's vmap takes no tensors.
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
constexpr Result kInt8Results[] = {made("(N, Co, Ho, Wo) in int8")};
constexpr Result kInt8Names[] = {printed()};

}  // namespace

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

}  // namespace mixed_gemm::conv

namespace mixed_gemm::contract {

constexpr Contract kQconv2dInt8 = {
    "qconv2d_int8", conv::kInt8Arguments, conv::kInt8Rules, conv::kInt8Results, nullptr, true};
constexpr Contract kQconv2dInt8Config = {"_qconv2d_int8_config", conv::kInt8ForcedArguments.items,
                                         conv::kInt8Rules, conv::kInt8Results, "qconv2d_int8"};
constexpr Contract kQconv2dInt8Configs = {"_qconv2d_int8_configs", conv::kInt8Arguments,
                                          conv::kInt8Rules, conv::kInt8Names, "qconv2d_int8"};

}  // namespace mixed_gemm::contract
