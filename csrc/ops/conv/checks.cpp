#include "ops/conv/checks.h"

#include <cmath>

#include "layout/conv_layout.h"
#include "ops/gemm/checks.h"
#include "ops/tensor_checks.h"
#include "problem/block_gemm.h"
#include "problem/conv.h"
#include "problem/extents.h"
#include "problem/gemm.h"
#include "problem/integer_bits.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {
namespace {

using torch::headeronly::MemoryFormat;

constexpr const char *kBlockRule = "(ceil(Ci/block_size), Co)", *kImages = "(N, Ci, H, W)",
                     *kFilter = "(Co, Ci, Kh, Kw)";

void require(const char* op, const std::string& reason) {
  if (!reason.empty()) refuse(ErrorKind::kValue, op, reason);
}

struct Pair {
  int64_t h, w;
};
Pair pair_of(const char* op, const char* argument, const std::vector<int64_t>& values) {
  if (values.size() != 2) {
    wrong_value(op, {argument, "be an int or two (height, width)", text(values)});
  }
  return {values[0], values[1]};
}

struct Settings {
  Pair kernel, stride, padding, dilation;
};

ConvShape shape_of(const Tensor& input, int64_t out_c, const Settings& s) {
  ConvShape shape;
  shape.images = input.size(0);
  shape.in_c = input.size(1);
  shape.in_h = input.size(2);
  shape.in_w = input.size(3);
  shape.out_c = out_c;
  shape.kernel_h = s.kernel.h;
  shape.kernel_w = s.kernel.w;
  shape.stride_h = s.stride.h;
  shape.stride_w = s.stride.w;
  shape.padding_h = s.padding.h;
  shape.padding_w = s.padding.w;
  shape.dilation_h = s.dilation.h;
  shape.dilation_w = s.dilation.w;
  if (s.stride.h > 0 && s.stride.w > 0) {  // else refused later
    shape.out_h = conv_out_extent(shape.in_h, s.kernel.h, s.stride.h, s.padding.h, s.dilation.h);
    shape.out_w = conv_out_extent(shape.in_w, s.kernel.w, s.stride.w, s.padding.w, s.dilation.w);
  }
  return shape;
}

ImageStrides strides_of(const Tensor& t) {
  return {t.stride(0), t.stride(1), t.stride(2), t.stride(3)};
}

template <typename Problem>
Tensor new_output(const Tensor& input, ScalarType dtype, Problem& p) {
  const ConvShape& s = p.shape;
  p.d_channels_last = is_channels_last(input);
  const auto format = p.d_channels_last ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous;
  const std::vector<int64_t> sizes = {s.images, s.out_c, s.out_h, s.out_w};
  Tensor d = torch::stable::empty(sizes, dtype, {}, input.device(), {}, format);
  p.d_strides = strides_of(d);
  return d;
}

Tensor check_weight_packed(const char* op, const Tensor& packed, const ConvShape& s, int64_t bits) {
  check_dtype(op, "weight_packed", packed, ScalarType::Byte,
              " (from mixed_gemm.pack_conv_weights)");
  const int64_t k = conv_k(s.in_c, s.taps());
  check_matrix(op, "weight_packed", packed, "(round_up(Co, 64), round_up(K, 64) * bits / 8)",
               round_up(s.out_c, kPadN), round_up(k, kPadK) * bits / 8, [&] {
                 return joined("Co=", s.out_c, " from scales, Ci=", s.in_c, " from input, K=", k,
                               " = ", s.kernel_h, " * ", s.kernel_w, " * ",
                               channels_per_tap(s.in_c), " (Ci padded), bits=", bits);
               });
  const Tensor kept = as_contiguous(packed);
  const bool aligned = reinterpret_cast<uintptr_t>(kept.const_data_ptr()) % 16 == 0;
  return aligned ? kept : torch::stable::clone(kept);
}

void check_block_tensor(const char* op, const char* argument, const Tensor& t,
                        const ConvProblem& p) {
  check_matrix(
      op, argument, t, kBlockRule, p.blocks(), p.shape.out_c,
      [&] { return joined("Ci=", p.shape.in_c, ", block_size=", p.block_size); }, true);
}

// scales and offsets share one stride.
void check_blocks(const char* op, const ConvArguments& g, CheckedConv& checked) {
  ConvProblem& p = checked.problem;
  check_block_tensor(op, "scales", g.scales, p);
  checked.scales = with_unit_inner_stride(g.scales);
  if (g.offsets) {
    check_dtype(op, "offsets", *g.offsets, g.input.scalar_type(), " (the dtype of input)");
    check_block_tensor(op, "offsets", *g.offsets, p);
    checked.offsets = with_unit_inner_stride(*g.offsets);
    if (checked.offsets->stride(0) != checked.scales.stride(0)) {
      checked.scales = as_contiguous(checked.scales);
      checked.offsets = as_contiguous(*checked.offsets);
    }
  }
  p.scales = checked.scales.const_data_ptr();
  p.offsets = checked.offsets ? checked.offsets->const_data_ptr() : nullptr;
  p.scale_stride = p.blocks() > 1 ? checked.scales.stride(0) : p.shape.out_c;
}

int32_t check_int8(const char* op, const char* argument, int64_t value) {
  if (value < -128 || value > 127) {
    wrong_value(op, {argument, "be in -128..127", std::to_string(value)});
  }
  return static_cast<int32_t>(value);
}

double check_scale(const char* op, const char* argument, double value) {
  if (value > 0 && std::isfinite(value)) return value;
  wrong_value(op, {argument, "be positive and finite", std::isnan(value) ? "nan" : joined(value)});
}

}  // namespace

bool is_channels_last(const Tensor& t) {
  int64_t least = 0;
  if (t.stride(1) == 0) return false;
  for (const int dim : {1, 3, 2, 0}) {
    const int64_t size = t.size(dim), stride = t.stride(dim);
    if (size == 0 || stride < least) return false;
    if (dim == 0 && least == t.stride(1)) return false;  // [N, 1, 1, 1]: ambiguous, so NCHW
    least = size > 1 ? stride * size : stride;
  }
  return true;
}

CheckedConv check_qconv2d(const ConvArguments& g) {
  const char* op = "qconv2d";
  check_tensors(op, {{"input", g.input},
                     {"weight_packed", g.weight_packed},
                     {"scales", g.scales},
                     {"offsets", g.offsets},
                     {"bias", g.bias}});
  check_dims(op, "input", g.input, 4, kImages);
  check_dims(op, "scales", g.scales, 2, kBlockRule);

  CheckedConv checked;
  ConvProblem& p = checked.problem;
  p.element = element_type(op, "input", dtype_of(g.input), "input.to(scales.dtype)");
  p.shape = shape_of(g.input, g.scales.size(1),
                     {pair_of(op, "kernel_size", g.kernel_size), pair_of(op, "stride", g.stride),
                      pair_of(op, "padding", g.padding), pair_of(op, "dilation", g.dilation)});
  require(op, why_not_bits(g.bits));
  require(op, why_not_conv(p.shape, g.block_size));
  p.weight = *integer_weight(g.bits);
  p.block_size = g.block_size == -1 ? p.shape.in_c : g.block_size;
  p.activation =
      static_cast<Activation>(index_of(op, "activation", g.activation, kActivationNames, 0));
  check_dtype(op, "scales", g.scales, g.input.scalar_type(), " (the dtype of input)",
              "scales.to(input.dtype)");
  check_blocks(op, g, checked);
  checked.weight_packed = check_weight_packed(op, g.weight_packed, p.shape, g.bits);
  p.weight_packed = static_cast<const uint8_t*>(checked.weight_packed.const_data_ptr());
  if (g.bias) {
    check_dtype(op, "bias", *g.bias, g.input.scalar_type(), " (the dtype of input)");
    check_vector(op, "bias", *g.bias, "Co", p.shape.out_c);
    checked.bias = as_contiguous(*g.bias);
    p.bias = checked.bias->const_data_ptr();
  }
  checked.input = g.input;
  p.input = g.input.const_data_ptr();
  p.input_strides = strides_of(g.input);
  checked.d = new_output(g.input, g.input.scalar_type(), p);
  p.d = checked.d.mutable_data_ptr();
  return checked;
}

CheckedConvInt8 check_qconv2d_int8(const ConvInt8Arguments& g) {
  const char* op = "qconv2d_int8";
  check_tensors(op, {{"input", g.input},
                     {"weight", g.weight},
                     {"weight_scale", g.weight_scale},
                     {"bias", g.bias},
                     {"weight_sums", g.weight_sums}});
  check_dims(op, "input", g.input, 4, kImages);
  check_dims(op, "weight", g.weight, 4, kFilter);
  check_dtype(op, "input", g.input, ScalarType::Char, "", "quantize_per_tensor makes it");
  check_dtype(op, "weight", g.weight, ScalarType::Char, " (not packed)");
  if (g.weight.size(1) != g.input.size(1)) {
    wrong_value(op, {"weight", joined("be ", kFilter, " with Ci=", g.input.size(1), " of input"),
                     text(sizes_of(g.weight)), "", "groups are not supported"});
  }

  CheckedConvInt8 checked;
  ConvInt8Problem& p = checked.problem;
  p.shape = shape_of(g.input, g.weight.size(0),
                     {{g.weight.size(2), g.weight.size(3)},
                      pair_of(op, "stride", g.stride),
                      pair_of(op, "padding", g.padding),
                      pair_of(op, "dilation", g.dilation)});
  require(op, why_not_conv_int8(p.shape));
  p.input_scale = check_scale(op, "input_scale", g.input_scale);
  p.output_scale = check_scale(op, "output_scale", g.output_scale);
  p.input_zero_point = check_int8(op, "input_zero_point", g.input_zero_point);
  p.output_zero_point = check_int8(op, "output_zero_point", g.output_zero_point);
  p.clamp_min = check_int8(op, "clamp_min", g.clamp_min);
  p.clamp_max = check_int8(op, "clamp_max", g.clamp_max);
  if (p.clamp_min > p.clamp_max) {
    wrong_value(op,
                {"clamp_min", "not be above clamp_max", joined(p.clamp_min, " and ", p.clamp_max)});
  }

  check_dtype(op, "weight_scale", g.weight_scale, ScalarType::Float);
  const bool one_scale = g.weight_scale.numel() == 1 && g.weight_scale.dim() <= 1;
  if (!one_scale) check_vector(op, "weight_scale", g.weight_scale, "Co", p.shape.out_c);
  checked.weight_scale = contiguous_elements(g.weight_scale);
  p.weight_scale = static_cast<const float*>(checked.weight_scale.const_data_ptr());
  p.weight_scale_stride = one_scale ? 0 : 1;
  if (g.bias) {
    check_dtype(op, "bias", *g.bias, ScalarType::Float);
    check_vector(op, "bias", *g.bias, "Co", p.shape.out_c);
    checked.bias = contiguous_elements(*g.bias);
    p.bias = static_cast<const float*>(checked.bias->const_data_ptr());
  }
  if (g.weight_sums) {
    check_dtype(op, "weight_sums", *g.weight_sums, ScalarType::Int);
    check_vector(op, "weight_sums", *g.weight_sums, "Co", p.shape.out_c);
    checked.weight_sums = contiguous_elements(*g.weight_sums);
    p.weight_sums = static_cast<const int32_t*>(checked.weight_sums->const_data_ptr());
  }
  checked.input = g.input;
  p.input = static_cast<const int8_t*>(g.input.const_data_ptr());
  p.input_strides = strides_of(g.input);
  checked.weight = torch::stable::contiguous(g.weight, MemoryFormat::ChannelsLast);
  p.weight = static_cast<const int8_t*>(checked.weight.const_data_ptr());
  checked.d = new_output(g.input, ScalarType::Char, p);
  p.d = static_cast<int8_t*>(checked.d.mutable_data_ptr());
  return checked;
}

Tensor conv_filter_matrix(const Tensor& q, int64_t bits, bool check) {
  const char* op = "pack_conv_weights";
  check_tensors(op, {{"q", q}});
  check_dtype(op, "q", q, ScalarType::Char, " (signed values)", "q.to(torch.int8)");
  check_dims(op, "q", q, 4, kFilter);
  const int64_t out_c = q.size(0), in_c = q.size(1);
  if (q.numel() == 0) wrong_value(op, {"q", "not be empty", text(sizes_of(q))});
  ConvShape filter;  // what depends on the filter alone: seen by an image that it just covers
  filter.in_c = in_c;
  filter.out_c = out_c;
  filter.in_h = filter.kernel_h = q.size(2);
  filter.in_w = filter.kernel_w = q.size(3);
  filter.out_h = filter.out_w = 1;
  require(op, why_not_bits(bits));
  require(op, why_not_conv(filter, -1));
  if (check || q.is_cpu()) check_range(op, "q", q, bits);
  const int64_t taps = filter.taps(), channels = channels_per_tap(in_c);
  const Tensor by_tap =
      torch::stable::transpose(torch::stable::reshape(q, {out_c, in_c, taps}), 1, 2);
  Tensor padded = torch::stable::new_zeros(q, {out_c, taps, channels});
  Tensor real = torch::stable::narrow(padded, 2, 0, in_c);
  torch::stable::copy_(real, by_tap);
  return torch::stable::view(padded, {out_c, taps * channels});
}

}  // namespace mixed_gemm
