#include "ops/conv/contract.h"

#include "layout/conv_layout.h"
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

ConvShape geometry_of(const Given& given) {
  return shape_of(given, given.views[kScales].sizes[1], given.lists[kKernel], kStride);
}

std::optional<Refusal> refuse_conv(Given& given) {
  const std::string wrong_bits = why_not_bits(given[Bits]);
  return refusal_of(wrong_bits.empty() ? why_not_conv(geometry_of(given), given[BlockSize])
                                       : wrong_bits);
}

constexpr const char* kPackedWords = "(round_up(Co, 64), round_up(K, 64) * bits / 8)";

std::optional<Refusal> refuse_packed(Given& given) {
  const ConvShape s = geometry_of(given);
  const View& packed = given.views[kPacked];
  const int64_t bits = given[Bits], k = conv_k(s.in_c, s.taps());
  const int64_t expected[] = {round_up(s.out_c, kPadN), round_up(k, kPadK) * bits / 8};
  if (packed.dims == 2 && packed.sizes[0] == expected[0] && packed.sizes[1] == expected[1]) {
    return {};
  }
  return value_fault(
      {"weight_packed", std::string("be ") + kPackedWords + " = " + sizes_text(expected, 2),
       sizes_text(packed.sizes, packed.dims),
       joined("Co=", s.out_c, " from scales, Ci=", s.in_c, " from input, K=", k, " = ", s.kernel_h,
              " * ", s.kernel_w, " * ", channels_per_tap(s.in_c), " (Ci padded), bits=", bits)});
}

constexpr Rule by_block(const char* name) {
  return shape(name, {groups(Ci, BlockSize), Co}).because_of({Ci, BlockSize}).may_be_transposed();
}

constexpr Argument kArguments[] = {tensor("input"),
                                   tensor("weight_packed").must_be("", kPackedWords),
                                   tensor("scales"),
                                   optional_tensor("offsets"),
                                   optional_tensor("bias"),
                                   integer("bits").keyword().binds(Bits).must_be("", "4 or 8"),
                                   integer("block_size", "-1")
                                       .keyword()
                                       .binds(BlockSize)
                                       .must_be("", "channels that share a scale; -1: all of them"),
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
constexpr Result kResults[] = {made("(N, Co, Ho, Wo) in the dtype of `input`")};
constexpr Result kNames[] = {printed()};

}  // namespace

ConvProblem problem_of(Call& call) {
  ConvProblem p;
  p.shape = geometry_of(call.given());
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

}  // namespace mixed_gemm::conv

namespace mixed_gemm::contract {

constexpr Contract kQconv2d = {"qconv2d",      conv::kArguments, conv::kRules,
                               conv::kResults, nullptr,          true};
constexpr Contract kQconv2dConfig = {"_qconv2d_config", conv::kForcedArguments.items, conv::kRules,
                                     conv::kResults, "qconv2d"};
constexpr Contract kQconv2dConfigs = {"_qconv2d_configs", conv::kArguments, conv::kRules,
                                      conv::kNames, "qconv2d"};

}  // namespace mixed_gemm::contract
