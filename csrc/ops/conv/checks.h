// Tensors -> ConvProblem and ConvInt8Problem, or an exception that names op, argument, what was
// expected with numbers, what came, what to do. All of it happens before any launch.
#pragma once
#include <vector>

#include "ops/torch_stable.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct ConvArguments {
  Tensor input, weight_packed, scales;
  std::optional<Tensor> offsets, bias;
  int64_t bits, block_size;
  std::vector<int64_t> kernel_size, stride, padding, dilation;
  std::string activation;
};

// A checked call: the problem points into these tensors, so they live as long as it. The output is
// allocated, in the memory format of the input.
struct CheckedConv {
  ConvProblem problem;
  Tensor input, weight_packed, scales, d;
  std::optional<Tensor> offsets, bias;
};
CheckedConv check_qconv2d(const ConvArguments& arguments);

struct ConvInt8Arguments {
  Tensor input, weight, weight_scale;
  std::optional<Tensor> bias, weight_sums;
  double input_scale;
  int64_t input_zero_point;
  double output_scale;
  int64_t output_zero_point, clamp_min, clamp_max;
  std::vector<int64_t> stride, padding, dilation;
};

struct CheckedConvInt8 {
  ConvInt8Problem problem;
  Tensor input, weight, weight_scale, d;
  std::optional<Tensor> bias, weight_sums;
};
CheckedConvInt8 check_qconv2d_int8(const ConvInt8Arguments& arguments);

// q: int8 [Co, Ci, Kh, Kw]. Returned as the [N, K] matrix of layout/conv_layout.h, contiguous, on
// the device of q; made of torch ops. check: as in check_quantized().
Tensor conv_filter_matrix(const Tensor& q, int64_t bits, bool check);

// Whether strides order an image tensor as torch.channels_last. The rule of torch itself
// (c10::is_channels_last_strides_2d), because the output follows the input as torch's does.
bool is_channels_last(const Tensor& images);

}  // namespace mixed_gemm
