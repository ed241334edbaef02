// One 2-d convolution as plain data: what ops/ hands to cpu/ and dispatch/. No torch, no CUTLASS.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>

#include "core/quant_scheme.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// The geometry, the same for both convolutions. `images` is the batch; a tap is one (y, x) of the
// kernel; `in_c` channels and an in_h x in_w image go in, `out_c` and out_h x out_w come out.
//
// As a GEMM: M = rows() output pixels, N = out_c, and K runs over the taps (y slowest, then x) with
// the channels of a tap innermost.
struct ConvShape {
  int64_t images = 0;
  int64_t in_c = 0, in_h = 0, in_w = 0;
  int64_t out_c = 0, out_h = 0, out_w = 0;
  int64_t kernel_h = 1, kernel_w = 1;
  int64_t stride_h = 1, stride_w = 1;
  int64_t padding_h = 0, padding_w = 0;
  int64_t dilation_h = 1, dilation_w = 1;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t rows() const { return images * out_h * out_w; }
  // Row i of the GEMM is the pixel of the input image, row-major: nothing has to be gathered.
  bool is_pointwise() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && padding_h == 0 && padding_w == 0;
  }
};

inline auto selection_key(const ConvShape& shape) {
  const auto& [images, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h, kernel_w, stride_h,
               stride_w, padding_h, padding_w, dilation_h, dilation_w] = shape;
  return std::tuple(images, in_c, in_h, in_w, out_c, out_h, out_w, kernel_h, kernel_w, stride_h,
                    stride_w, padding_h, padding_w, dilation_h, dilation_w);
}

// The most of each setting, so that products of two of them are below 2^63.
constexpr int64_t kMaxConvSetting = 0x7fffffff;

// Output pixels along one side; 0 where the kernel does not fit into the padded image, and for
// settings that no convolution has.
constexpr int64_t conv_out_extent(int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                                  int64_t dilation) {
  const auto within = [](int64_t value, int64_t least) {
    return value >= least && value <= kMaxConvSetting;
  };
  if (!within(kernel, 1) || !within(stride, 1) || !within(padding, 0) || !within(dilation, 1)) {
    return 0;
  }
  constexpr int64_t kMany = int64_t{1} << 62;  // more pixels than anything has
  const int64_t room = (in < kMany ? in : kMany) + 2 * padding - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Elements from one image, channel, row or pixel to the next. Any strides may come in.
struct ImageStrides {
  int64_t image = 0, c = 0, h = 0, w = 0;
};

// d[i, o, y, x] = activation(bias[o] + sum over taps and channels of
//                            input[i, c, y', x'] * w[o, c, tap]), where
//   y' = y * stride_h - padding_h + tap_y * dilation_h, x' alike; outside the image it is 0
//   w[o, c, tap] = q[o, c, tap] * scales[c / block_size, o] + offsets[c / block_size, o]
// input, scales, offsets, bias and d have the element type `element`; null means absent.
struct ConvProblem {
  ConvShape shape;
  ElementType element = ElementType::kFloat16;
  WeightType weight = WeightType::kInt4;
  int64_t block_size = 0;  // channels that share a scale; one block is in_c itself, never -1
  Activation activation = Activation::kIdentity;

  const void* input = nullptr;  // [images, in_c, in_h, in_w]
  ImageStrides input_strides;
  const uint8_t* weight_packed = nullptr;  // layout/conv_layout.h, contiguous, 16-byte aligned
  const void* scales = nullptr;            // [ceil(in_c / block_size), out_c]
  const void* offsets = nullptr;           // same shape and stride as scales, or null: all 0
  int64_t scale_stride = 0;                // elements between rows of scales and of offsets
  const void* bias = nullptr;              // [out_c]
  void* d = nullptr;                       // [images, out_c, out_h, out_w]
  ImageStrides d_strides;  // dense: channels-last (c is 1) or NCHW (w is 1), see d_channels_last
  bool d_channels_last = false;

  int64_t blocks() const { return ceil_div(shape.in_c, block_size); }
};

// Strides of images are left out: whatever they are, a kernel gets dense channels-last pixels.
inline auto selection_key(const ConvProblem& problem) {
  const auto& [shape, element, weight, block_size, activation, input, input_strides, weight_packed,
               scales, offsets, scale_stride, bias, d, d_strides, d_channels_last] = problem;
  return std::tuple_cat(selection_key(shape),
                        std::tuple(element, weight, block_size, activation, offsets != nullptr,
                                   scale_stride, bias != nullptr, d_channels_last));
}

// |input - zero point| is at most 255 and |weight| at most 128: up to this K = taps * in_c their
// sum of products fits int32, and so do both of its parts.
constexpr int64_t kMaxConvInt8K = 65793;

// All integers, with one scale for the input, one for the output and one for each output channel:
//   sum = sum of input * weight - input_zero_point * sum of weight    exact in int32; a pixel
//                                outside the image is input_zero_point, so it contributes 0
//   m = float(input_scale * weight_scale[o] / output_scale)           in double, left to right
//   offset = float(bias[o] / output_scale + output_zero_point)        in double
//   y = float(sum) * m + offset                  fp32: conversion, product, addition, each rounded
//   d[i, o, y, x] = rint(min(max(y, clamp_min), clamp_max))           ties to even; NaN: clamp_min
// The usual fused bias is -z_in * sum(w) + bias / (s_in * s_w) + z_out / M. Here its integer part
// stays an integer and the rest is multiplied by M first: truncated to an int32 as a whole, it
// would lose up to M of an output step.
struct ConvInt8Problem {
  ConvShape shape;
  double input_scale = 1, output_scale = 1;  // positive and finite
  int32_t input_zero_point = 0, output_zero_point = 0;
  int32_t clamp_min = -128, clamp_max = 127;

  const int8_t* input = nullptr;  // [images, in_c, in_h, in_w]
  ImageStrides input_strides;
  const int8_t* weight = nullptr;  // [out_c, kernel_h, kernel_w, in_c] contiguous: channels-last
  const float* weight_scale = nullptr;  // channel o at o * weight_scale_stride
  int64_t weight_scale_stride = 0;      // 0: one scale, 1: one for each output channel
  const float* bias = nullptr;          // [out_c] or null
  // [out_c], the sum of weight of the formula, trusted. Null: it is summed in the call.
  const int32_t* weight_sums = nullptr;
  int8_t* d = nullptr;     // [images, out_c, out_h, out_w]
  ImageStrides d_strides;  // as in ConvProblem
  bool d_channels_last = false;
};

inline auto selection_key(const ConvInt8Problem& problem) { return selection_key(problem.shape); }

// Why no backend runs this geometry, or empty. `shape` is as the user gave it, out_h and out_w
// computed: images that are too large, kernels that do not fit, a stride of 0.
std::string why_not_conv_shape(const ConvShape& shape);

// Says the same as why_not_conv_shape, and what the weights add. Empty: accepted.
std::string why_not_conv(const ConvShape& shape, int64_t block_size);
std::string why_not_conv_int8(const ConvShape& shape);

// The convolution as a GEMM, for what only depends on sizes and scheme: tensors are null.
GemmProblem gemm_of(const ConvProblem& problem);
ScaledMmProblem gemm_of(const ConvShape& shape);
// A pointwise convolution as a GEMM, whose scales are its own.
GemmProblem pointwise_gemm_of(const ConvProblem& problem);

}  // namespace mixed_gemm
