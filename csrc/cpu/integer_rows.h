// Rows of int8 A as the dot products read them: converted, K filled up with zeros.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/parallel.h"
#include "cpu/aligned_buffer.h"
#include "cpu/call_shape.h"
#include "cpu/integer_kernels.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm::cpu {

class IntegerRows {
 public:
  // Rows [begin, end) of A.
  IntegerRows(const IntegerKernels& kernels, const ScaledMmProblem& p, int64_t begin, int64_t end,
              const ParallelFor& parallel_for)
      : kernels_(kernels),
        stride_(round_up(std::max<int64_t>(p.k, 1), kernels.k_step)),
        bytes_(ceil_div((end - begin) * stride_ * kernels.a_bytes, 4)),
        start_(kernels.b_shifted ? end - begin : 0) {
    const auto* a = static_cast<const int8_t*>(p.a);
    parallel_for(0, end - begin, CallShape::grain(p.k), [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        const int8_t* row = a + (begin + i) * p.lda;
        kernels.prepare(row, p.k, at(i, 0));
        if (kernels.b_shifted) start_[i] = -128 * std::accumulate(row, row + p.k, 0);
      }
    });
  }

  // Element k of row i; k is a multiple of k_step.
  char* at(int64_t i, int64_t k) const {
    return reinterpret_cast<char*>(bytes_.data()) + (i * stride_ + k) * kernels_.a_bytes;
  }
  int64_t stride() const { return stride_; }  // in elements
  // What the sums of row i begin with. In -2^14 * K .. 2^14 * K, so it fits.
  int32_t start(int64_t i) const { return kernels_.b_shifted ? start_[i] : 0; }

 private:
  const IntegerKernels& kernels_;
  int64_t stride_;
  AlignedBuffer bytes_;
  std::vector<int32_t> start_;
};

}  // namespace mixed_gemm::cpu
