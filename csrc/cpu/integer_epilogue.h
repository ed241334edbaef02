// The epilogue of a row of sums, IntegerKernels::to_real and scale: plain loops, in the vectors of
// the file that includes this. With the vectors of any x86 the epilogue of 16 rows of 1536 x 576
// took a third of the product: 28 us in all, 20 with AVX-512 (2 threads of a Xeon with AMX).
#pragma once
#include "cpu/integer_kernels.h"

namespace mixed_gemm::cpu {
namespace {

void real_sums(const int32_t* sums, int64_t count, const IntegerKernels::ZeroPoint& zero,
               float* to) {
  const int32_t* adjustment = zero.adjustment;
  if (adjustment == nullptr) {
    for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(sums[j]);
  } else if (zero.fits) {
    const auto azp = static_cast<int32_t>(zero.azp);
    for (int64_t j = 0; j < count; ++j) to[j] = static_cast<float>(sums[j] - azp * adjustment[j]);
  } else {
    for (int64_t j = 0; j < count; ++j) {
      to[j] = static_cast<float>(sums[j] - zero.azp * adjustment[j]);
    }
  }
}

void scale_row(const IntegerKernels::RowScale& s, int64_t count, float* values) {
  const float scale_a = s.scale_a, *scale_b = s.scale_b, *bias = s.bias;
  if (s.one_scale_b) {
    const float scale = *scale_b;
    for (int64_t j = 0; j < count; ++j) values[j] = scale_a * (scale * values[j]);
  } else {
    for (int64_t j = 0; j < count; ++j) values[j] = scale_a * (scale_b[j] * values[j]);
  }
  if (bias == nullptr) return;
  for (int64_t j = 0; j < count; ++j) values[j] += bias[j];
}

}  // namespace
}  // namespace mixed_gemm::cpu
