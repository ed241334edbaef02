// The geometry of a convolution as a call says it, and the images that come out.
#pragma once
#include "ops/call.h"
#include "problem/conv.h"

namespace mixed_gemm::conv {

constexpr int kInput = 0;
constexpr const char *kImages = "(N, Ci, H, W)", *kFilter = "(Co, Ci, Kh, Kw)";

inline std::optional<Refusal> refusal_of(const std::string& reason) {
  if (reason.empty()) return {};
  return Refusal{ErrorKind::kValue, reason};
}

// kernel: height and width. stride_at: the place of stride, behind which padding and dilation
// stand.
ConvShape shape_of(const contract::Given& given, int64_t out_c, const int64_t* kernel,
                   int stride_at);

ImageStrides strides_of(const contract::View& images);

// Whether strides order images as torch.channels_last.
bool is_channels_last(const contract::View& images);

// Makes the result, in the memory format of the input, and points d of the problem to it.
template <typename Problem>
void make_images(Call& call, Problem& p) {
  const ConvShape& s = p.shape;
  const contract::View& input = call.view(kInput);
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

}  // namespace mixed_gemm::conv
