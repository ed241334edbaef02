// Rows of a convolution as a GEMM (im2col): for an output pixel, the input pixels under its taps,
// channels innermost. They are gathered block by block, so that a block stays in cache.
#pragma once
#include <cstring>
#include <optional>

#include "core/parallel.h"
#include "cpu/call_shape.h"
#include "problem/conv.h"

namespace mixed_gemm::cpu {

// The place of an output pixel: row i of the GEMM.
struct PixelPlace {
  int64_t image, y, x;
  PixelPlace(const ConvShape& s, int64_t row)
      : image(row / (s.out_h * s.out_w)), y(row / s.out_w % s.out_h), x(row % s.out_w) {}
};

// The stride between the rows of a pointwise convolution where they lie, if there is one for all.
inline std::optional<int64_t> stride_of_rows_in_place(const ConvShape& s,
                                                      const ImageStrides& strides) {
  if (!s.is_pointwise()) return std::nullopt;
  const int64_t dims[][2] = {{s.in_w, strides.w}, {s.in_h, strides.h}, {s.images, strides.image}};
  std::optional<int64_t> found;
  int64_t expected = 0;
  for (const auto& [size, stride] : dims) {
    if (size == 1) continue;  // its stride may be anything
    if (found && stride != expected) return std::nullopt;
    if (!found) found = stride;
    expected = stride * size;
  }
  return found.value_or(0);
}

class PatchRows {
 public:
  // Each tap takes `tap_channels` elements of `element_bytes`: those of the image, then zeros. A
  // tap outside the image holds `outside` in every byte.
  PatchRows(const ConvShape& shape, const void* input, const ImageStrides& strides,
            int64_t element_bytes, int64_t tap_channels, int outside)
      : s_(shape),
        input_(static_cast<const char*>(input)),
        strides_(strides),
        element_bytes_(element_bytes),
        real_bytes_(shape.in_c * element_bytes),
        tap_bytes_(tap_channels * element_bytes),
        outside_(outside) {}

  int64_t row_bytes() const { return s_.taps() * tap_bytes_; }

  // Copies rows [begin, end) to `to`, one after the other.
  void gather(int64_t begin, int64_t end, void* to, const ParallelFor& parallel_for) const {
    const int64_t grain = CallShape::grain(row_bytes());
    parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        gather_row(row, static_cast<char*>(to) + (row - begin) * row_bytes());
      }
    });
  }

 private:
  void gather_row(int64_t row, char* to) const {
    const PixelPlace at(s_, row);
    const char* image = input_ + at.image * strides_.image * element_bytes_;
    const int64_t top = at.y * s_.stride_h - s_.padding_h;
    const int64_t left = at.x * s_.stride_w - s_.padding_w;
    for (int64_t ky = 0; ky < s_.kernel_h; ++ky) {
      const int64_t y = top + ky * s_.dilation_h;
      for (int64_t kx = 0; kx < s_.kernel_w; ++kx, to += tap_bytes_) {
        const int64_t x = left + kx * s_.dilation_w;
        if (y < 0 || y >= s_.in_h || x < 0 || x >= s_.in_w) {
          std::memset(to, outside_, tap_bytes_);
          continue;
        }
        std::memcpy(to, image + (y * strides_.h + x * strides_.w) * element_bytes_, real_bytes_);
        std::memset(to + real_bytes_, 0, tap_bytes_ - real_bytes_);
      }
    }
  }

  const ConvShape& s_;
  const char* input_;
  ImageStrides strides_;
  int64_t element_bytes_, real_bytes_, tap_bytes_;
  int outside_;
};

}  // namespace mixed_gemm::cpu
