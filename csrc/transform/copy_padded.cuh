// Brings a matrix into the form the GEMM wants: contiguous, 16-byte rows, zero-padded columns,
// activation scale applied (one rounding). See CopyPaddedArgs.
#pragma once
#include "transform/args.h"

namespace mixed_gemm {

template <typename Element>
__global__ void copy_padded_kernel(const Element* src, int64_t src_stride, int64_t rows,
                                   int64_t columns, int64_t dst_columns, const Element* pre_scale,
                                   Element* dst) {
  const int64_t elements = rows * dst_columns;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = i / dst_columns, column = i % dst_columns;
    Element value(0.f);
    if (column < columns) {
      value = src[row * src_stride + column];
      if (pre_scale != nullptr) value = Element(float(value) * float(pre_scale[column]));
    }
    dst[i] = value;
  }
}

// Copies bytes of odd alignment, one a thread; see CopyRowsArgs. Blocks of x share a row.
__global__ inline void copy_rows_kernel(const CopyRowsArgs p) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= p.dst_stride) return;
  const auto* src = static_cast<const uint8_t*>(p.src);
  for (int64_t row = blockIdx.y; row < p.rows; row += gridDim.y) {
    static_cast<uint8_t*>(p.dst)[row * p.dst_stride + k] =
        k < p.k ? src[row * p.src_stride + k] : uint8_t{0};
  }
}

}  // namespace mixed_gemm
