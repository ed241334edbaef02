#include "ops/conv/images.h"

namespace mixed_gemm::conv {

ConvShape shape_of(const contract::Given& given, int64_t out_c, const int64_t* kernel,
                   int stride_at) {
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

ImageStrides strides_of(const contract::View& t) {
  return {t.strides[0], t.strides[1], t.strides[2], t.strides[3]};
}

// This is torch's own rule (c10::is_channels_last_strides_2d), because the output follows the input
// as torch's does.
bool is_channels_last(const contract::View& t) {
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

}  // namespace mixed_gemm::conv
