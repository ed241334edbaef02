// IntegerKernels in plain C++. See integer_kernels.h.
#pragma once
#include <algorithm>
#include <cmath>

#include "cpu/integer_epilogue.h"
#include "cpu/integer_kernels.h"

namespace mixed_gemm::cpu {
namespace {

void prepare_portable(const int8_t* a, int64_t k, void* to) {
  std::copy_n(a, k, static_cast<int8_t*>(to));
}

template <int kRows, int kColumns>
void multiply_portable(const IntegerKernels::Operands& o, int32_t* sums, int64_t stride) {
  const auto* a = static_cast<const int8_t*>(o.a);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      int32_t sum = 0;
      for (int64_t k = 0; k < o.k; ++k) {
        sum += int32_t{a[r * o.a_stride + k]} * o.b[c * o.ldb + k];
      }
      sums[r * stride + c] += sum;
    }
  }
}

IntegerKernels::Range range_portable(const float* row, int64_t k) {
  const float first = k > 0 ? row[0] : 0;
  IntegerKernels::Range range = {first, first, false};
  for (int64_t i = 0; i < k; ++i) {
    range.low = row[i] < range.low ? row[i] : range.low;
    range.high = row[i] > range.high ? row[i] : range.high;
    range.nan |= std::isnan(row[i]);
  }
  return range;
}

void round_portable(const float* row, int64_t k, float inverse, int32_t azp, int8_t* q) {
  const auto least = static_cast<float>(-128 - azp), most = static_cast<float>(127 - azp);
  for (int64_t i = 0; i < k; ++i) {
    const float x = row[i] * inverse;
    const float number = std::isnan(x) ? 0.f : x;
    const float inside = number < least ? least : number > most ? most : number;
    q[i] = static_cast<int8_t>(static_cast<int32_t>(std::nearbyint(inside)) + azp);
  }
}

template <int kRows>
constexpr IntegerKernels::Shape shape_portable() {
  return {4, multiply_portable<kRows, 4>, multiply_portable<kRows, 1>};
}

constexpr IntegerKernels kIntegerPortable = {
    1,
    1,
    4,
    false,
    4,
    prepare_portable,
    {shape_portable<1>(), shape_portable<2>(), shape_portable<4>(), {}},
    range_portable,
    round_portable,
    real_sums,
    scale_row};

}  // namespace
}  // namespace mixed_gemm::cpu
