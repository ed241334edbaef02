// The epilogue of both paths: factors of columns, bias and activation in fp32 on a tile of sums,
// one rounding into d.
#pragma once
#include "cpu/call_shape.h"

namespace mixed_gemm::cpu {

class EpilogueCpu {
 public:
  explicit EpilogueCpu(const CallShape& shape)
      : shape_(shape), bias_(shape.p.bias ? shape.p.n : 0) {
    const GemmProblem& p = shape.p;
    if (p.bias) shape.kernels.to_float({p.element, p.bias, 0}, 1, p.n, bias_.data(), 0);
  }

  // tile[r * tile_stride + j] is the sum of element (row + r, column + j); it is overwritten.
  void finish(float* tile, int64_t tile_stride, int64_t row, int64_t rows, int64_t column,
              int64_t columns) const {
    const GemmProblem& p = shape_.p;
    const int64_t count = std::min(columns, p.n - column);
    for (int64_t r = 0; r < rows; ++r, tile += tile_stride) {
      if (p.factor) {
        for (int64_t j = 0; j < count; ++j) tile[j] *= p.factor[column + j];
      }
      if (p.bias) {
        for (int64_t j = 0; j < count; ++j) tile[j] += bias_.data()[column + j];
      }
      shape_.kernels.activate_row(p.activation, tile, count);
      char* to = static_cast<char*>(p.d) + ((row + r) * p.n + column) * element_bytes(p.element);
      shape_.kernels.from_float(tile, count, p.element, to);
    }
  }

 private:
  const CallShape& shape_;
  AlignedBuffer bias_;
};

}  // namespace mixed_gemm::cpu
