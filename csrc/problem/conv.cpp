#include "problem/conv.h"

#include <algorithm>
#include <initializer_list>

#include "layout/conv_layout.h"
#include "problem/extents.h"

namespace mixed_gemm {
namespace {

// CUTLASS's convolution iterators count elements, and their strides, in 32 bits.
constexpr int64_t kMaxElements = int64_t{1} << 31;

std::string pair_text(int64_t h, int64_t w) {
  return "(" + std::to_string(h) + ", " + std::to_string(w) + ")";
}

// An exact count where it fits 64 bits, else "2^63 or more".
struct Count {
  bool too_many;
  std::string text;
};
Count count_elements(std::initializer_list<int64_t> extents) {
  int64_t count = 1;
  for (const int64_t extent : extents) {
    if (extent == 0) return {false, "0"};
    if (__builtin_mul_overflow(count, extent, &count)) return {true, "2^63 or more"};
  }
  return {count >= kMaxElements, std::to_string(count)};
}

std::string why_not_settings(const ConvShape& s) {
  const struct {
    const char* name;
    int64_t h, w, least;
  } settings[] = {{"kernel_size", s.kernel_h, s.kernel_w, 1},
                  {"stride", s.stride_h, s.stride_w, 1},
                  {"padding", s.padding_h, s.padding_w, 0},
                  {"dilation", s.dilation_h, s.dilation_w, 1}};
  for (const auto& x : settings) {
    if (std::min(x.h, x.w) >= x.least && std::max(x.h, x.w) <= kMaxConvSetting) continue;
    return std::string(x.name) + " must be in " + std::to_string(x.least) + ".." +
           std::to_string(kMaxConvSetting) + ", got " + pair_text(x.h, x.w);
  }
  return "";
}

std::string why_not_images(const ConvShape& s) {
  const struct {
    const char* name;
    int64_t c, h, w;
  } images[] = {{"input", s.in_c, s.in_h, s.in_w}, {"the output", s.out_c, s.out_h, s.out_w}};
  for (const auto& x : images) {
    const Count count = count_elements({s.images, x.c, x.h, x.w});
    if (!count.too_many) continue;
    return std::string(x.name) + " must have fewer than 2^31 = 2147483648 elements, got " +
           count.text + " of (" + std::to_string(s.images) + ", " + std::to_string(x.c) + ", " +
           std::to_string(x.h) + ", " + std::to_string(x.w) + "). Hint: split the batch";
  }
  return "";
}

}  // namespace

std::string why_not_conv_shape(const ConvShape& s) {
  if (s.in_c < 1 || s.out_c < 1) {
    return "input and weight must have channels, got Ci=" + std::to_string(s.in_c) +
           ", Co=" + std::to_string(s.out_c);
  }
  const std::string settings = why_not_settings(s);
  if (!settings.empty()) return settings;
  if (s.out_h < 1 || s.out_w < 1) {
    const int64_t span_h = s.dilation_h * (s.kernel_h - 1) + 1;
    const int64_t span_w = s.dilation_w * (s.kernel_w - 1) + 1;
    return "kernel_size must not be larger than the padded image: it spans " +
           pair_text(span_h, span_w) + " pixels, the image has " +
           pair_text(s.in_h + 2 * s.padding_h, s.in_w + 2 * s.padding_w) +
           "; kernel_size=" + pair_text(s.kernel_h, s.kernel_w) +
           ", dilation=" + pair_text(s.dilation_h, s.dilation_w) +
           ", padding=" + pair_text(s.padding_h, s.padding_w);
  }
  return why_not_images(s);
}

std::string why_not_conv(const ConvShape& s, int64_t block_size) {
  const std::string reason = why_not_conv_shape(s);
  if (!reason.empty()) return reason;
  const Count k = count_elements({channels_per_tap(s.in_c), s.kernel_h, s.kernel_w});
  const std::string as_gemm = "as a GEMM of K = Kh * Kw * (Ci padded to " +
                              std::to_string(channels_per_tap(s.in_c)) + "), ";
  if (k.too_many) return as_gemm + "K must be below 2^31, got " + k.text;
  const auto gemm = why_not_problem(s.rows(), s.out_c, conv_k(s.in_c, s.taps()), -1);
  if (!gemm.empty()) return as_gemm + gemm.front();
  return why_not_block_size("Ci", s.in_c, block_size);
}

std::string why_not_conv_int8(const ConvShape& s) {
  const std::string reason = why_not_conv_shape(s);
  if (!reason.empty()) return reason;
  const Count k = count_elements({s.in_c, s.kernel_h, s.kernel_w});
  if (k.too_many || s.in_c * s.taps() > kMaxConvInt8K) {
    return "K = Ci * Kh * Kw must be at most " + std::to_string(kMaxConvInt8K) +
           ", so that the int32 sum of products of 255 and -128 cannot wrap, got K=" + k.text;
  }
  return "";
}

ScaledMmProblem gemm_of(const ConvShape& s) {
  ScaledMmProblem p;
  p.m = s.rows();
  p.n = s.out_c;
  p.k = s.taps() * round_up(s.in_c, 16);
  return p;
}

GemmProblem gemm_of(const ConvProblem& p) {
  GemmProblem gemm;
  gemm.m = p.shape.rows();
  gemm.n = p.shape.out_c;
  gemm.k = conv_k(p.shape.in_c, p.shape.taps());
  gemm.element = p.element;
  gemm.scheme =
      integer_scheme(p.weight, ConvGroups(p.shape.in_c, p.shape.taps(), p.block_size).size,
                     p.offsets == nullptr ? ZeroMode::kNone : ZeroMode::kAdd);
  gemm.activation = p.activation;
  return gemm;
}

GemmProblem pointwise_gemm_of(const ConvProblem& p) {
  GemmProblem gemm = gemm_of(p);
  gemm.k = p.shape.in_c;
  gemm.scheme.scales.group = p.block_size;
  return gemm;
}

}  // namespace mixed_gemm
