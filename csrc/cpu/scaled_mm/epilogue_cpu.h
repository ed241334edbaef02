// The epilogue of every 8-bit GEMM on the CPU: zero point, scales, bias, one rounding into d.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "cpu/aligned_buffer.h"
#include "cpu/call_shape.h"
#include "cpu/cpu_kernels.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm::cpu {

class ScaledEpilogueCpu {
 public:
  ScaledEpilogueCpu(const CpuKernels& kernels, const ScaledMmProblem& problem)
      : kernels_(kernels), p_(problem), bias_(p_.bias ? p_.n : 0) {
    if (p_.bias) kernels.to_float({p_.out, p_.bias, 0}, 1, p_.n, bias_.data(), 0);
    int64_t largest = 0;
    for (int64_t j = 0; p_.azp_adj && j < p_.n; ++j) {
      largest = std::max(largest, std::abs(int64_t{p_.azp_adj[j]}));
    }
    largest_adjustment_ = largest;
  }

  // The values of the rows of A: scales, `stride` apart, and zero points or null.
  struct OfRows {
    const float* scale;
    int64_t stride;
    const int32_t* azp;
  };

  // Takes sums[r * stride + j] for element (row + r, column + j), int32 or fp32.
  template <typename Sum>
  void finish(const Sum* sums, int64_t stride, int64_t row, int64_t rows, int64_t column,
              int64_t columns) const {
    finish({p_.scale_a, p_.scale_a_stride, p_.azp}, sums, stride, row, rows, column, columns);
  }

  // Does the same where the problem does not have the values of the rows.
  template <typename Sum>
  void finish(const OfRows& of_rows, const Sum* sums, int64_t stride, int64_t row, int64_t rows,
              int64_t column, int64_t columns) const {
    const int64_t bytes = element_bytes(p_.out);
    alignas(64) float values[kChunk];
    for (int64_t r = 0; r < rows; ++r, sums += stride) {
      for (int64_t j = 0; j < columns; j += kChunk) {
        const int64_t first = column + j, count = std::min(kChunk, columns - j);
        to_real(sums + j, of_rows, row + r, first, count, values);
        scale(of_rows, row + r, first, count, values);
        char* to = static_cast<char*>(p_.d) + ((row + r) * p_.n + first) * bytes;
        kernels_.from_float(values, count, p_.out, to);
      }
    }
  }

 private:
  static constexpr int64_t kChunk = 64;

  void to_real(const float* sums, const OfRows&, int64_t, int64_t, int64_t count, float* to) const {
    std::copy(sums, sums + count, to);
  }

  // Computes in 32 bits where the numbers at hand prove that it fits: without AVX-512 the 64-bit
  // conversion is scalar.
  void to_real(const int32_t* sums, const OfRows& of_rows, int64_t row, int64_t first,
               int64_t count, float* to) const {
    IntegerKernels::ZeroPoint zero = {nullptr, 1, true};
    if (p_.azp_adj) {
      const int64_t room = kLargestInt32 - kLargestProduct * p_.k;
      zero.adjustment = p_.azp_adj + first;
      if (of_rows.azp) zero.azp = of_rows.azp[row];
      zero.fits = std::abs(zero.azp) <= room / std::max<int64_t>(1, largest_adjustment_);
    }
    kernels_.int8->to_real(sums, count, zero, to);
  }

  void scale(const OfRows& of_rows, int64_t row, int64_t first, int64_t count,
             float* values) const {
    const float scale_a = of_rows.scale[row * of_rows.stride];
    const bool one = p_.scale_b_stride == 0;
    const float* bias = p_.bias ? bias_.data() + first : nullptr;
    kernels_.int8->scale({scale_a, p_.scale_b + (one ? 0 : first), one, bias}, count, values);
  }

  static constexpr int64_t kLargestInt32 = 2147483647;
  static constexpr int64_t kLargestProduct = 128 * 128;

  const CpuKernels& kernels_;
  const ScaledMmProblem& p_;
  AlignedBuffer bias_;
  int64_t largest_adjustment_ = 0;
};

}  // namespace mixed_gemm::cpu
