// The end of every 8-bit GEMM on the CPU: zero point, scales, bias, one rounding into d.
#pragma once
#include <algorithm>
#include <cstdlib>

#include "core/mutant.h"
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

  // What each row of A has: scales, `stride` apart, and zero points or null.
  struct OfRows {
    const float* scale;
    int64_t stride;
    const int32_t* azp;
  };

  // sums[r * stride + j] of element (row + r, column + j), int32 or fp32.
  template <typename Sum>
  void finish(const Sum* sums, int64_t stride, int64_t row, int64_t rows, int64_t column,
              int64_t columns) const {
    finish({p_.scale_a, p_.scale_a_stride, p_.azp}, sums, stride, row, rows, column, columns);
  }

  // The same where the problem does not say what the rows have.
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

  // The exact integer, rounded once. In 32 bits where the numbers at hand prove that it fits: the
  // 64-bit conversion is scalar.
  void to_real(const int32_t* sums, const OfRows& of_rows, int64_t row, int64_t first,
               int64_t count, float* to) const {
    if (!p_.azp_adj) {
      for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(sums[j]);
      return;
    }
    const int64_t of_row = MIXED_GEMM_MUTATED(AzpOfRow) ? std::max<int64_t>(row - 1, 0) : row;
    const int64_t azp = of_rows.azp ? of_rows.azp[of_row] : 1;
    const int32_t* adjustment = p_.azp_adj + first;
    const int64_t room = kLargestInt32 - kLargestProduct * p_.k;
    const bool fits = MIXED_GEMM_MUTATED(AzpWraps) ||
                      std::abs(azp) <= room / std::max<int64_t>(1, largest_adjustment_);
    if (fits) {
      const auto factor = static_cast<int32_t>(azp);
      for (int64_t j = 0; j < count; ++j) {
        to[j] = static_cast<float>(sums[j] - factor * adjustment[j]);
      }
    } else {
      for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(sums[j] - azp * adjustment[j]);
    }
  }

  void scale(const OfRows& of_rows, int64_t row, int64_t first, int64_t count,
             float* values) const {
    const bool before = MIXED_GEMM_MUTATED(ScaleOfRow) && row > 0 && row == p_.m - 1;
    const float scale_a = of_rows.scale[(before ? row - 1 : row) * of_rows.stride];
    const float* scale_b = p_.scale_b + first * p_.scale_b_stride;
    if (p_.scale_b_stride == 0) {
      for (int64_t j = 0; j < count; ++j) values[j] = scale_a * (*scale_b * values[j]);
    } else {
      for (int64_t j = 0; j < count; ++j) values[j] = scale_a * (scale_b[j] * values[j]);
    }
    if (!p_.bias) return;
    for (int64_t j = 0; j < count; ++j) values[j] += bias_.data()[first + j];
  }

  static constexpr int64_t kLargestInt32 = 2147483647;
  static constexpr int64_t kLargestProduct = 128 * 128;

  const CpuKernels& kernels_;
  const ScaledMmProblem& p_;
  AlignedBuffer bias_;
  int64_t largest_adjustment_ = 0;
};

}  // namespace mixed_gemm::cpu
