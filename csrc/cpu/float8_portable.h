// Float8Kernels in plain C++. See float8_kernels.h.
#pragma once
#include <array>
#include <cmath>

#include "core/float8.h"
#include "cpu/float8_kernels.h"

namespace mixed_gemm::cpu {
namespace {

// The value of every code.
const std::array<float, 256>& float8_values() {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (int bits = 0; bits < 256; ++bits) {
      values[static_cast<size_t>(bits)] = decode_e4m3(static_cast<uint8_t>(bits));
    }
    return values;
  }();
  return kValues;
}

void prepare_float8_portable(const uint8_t* a, int64_t k, void* to) {
  const auto& values = float8_values();
  for (int64_t i = 0; i < k; ++i) static_cast<float*>(to)[i] = values[a[i]];
}

template <int kRows, int kColumns>
void multiply_float8_portable(const Float8Kernels::Operands& o, float* sums, int64_t stride) {
  const auto& values = float8_values();
  const auto* a = static_cast<const float*>(o.a);
  int64_t segment = 0;
  for (int64_t k = 0; k < o.k; k += o.segments.length, ++segment, a += o.segments.padded) {
    const int64_t count = o.segments.length < o.k - k ? o.segments.length : o.k - k;
    for (int c = 0; c < kColumns; ++c) {
      float sum[kRows] = {};
      for (int64_t i = 0; i < count; ++i) {
        const float b = values[o.b[c * o.ldb + k + i]];
        for (int r = 0; r < kRows; ++r) sum[r] += a[r * o.a_stride + i] * b;
      }
      for (int r = 0; r < kRows; ++r) {
        const float scale =
            o.scale_a ? o.scale_a[r * o.scale_a_stride + segment] * o.scale_b[c][segment] : 1;
        sums[r * stride + c] += scale * sum[r];
      }
    }
  }
}

float largest_portable(const float* x, int64_t count) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!(std::fabs(x[i]) <= largest)) largest = std::fabs(x[i]);  // a NaN stays from here on
    if (std::isnan(largest)) break;
  }
  return largest;
}

void round_float8_portable(const float* x, int64_t count, float scale, uint8_t* q) {
  for (int64_t i = 0; i < count; ++i) q[i] = encode_e4m3(x[i] / scale);
}

template <int kRows>
constexpr Float8Kernels::Shape float8_shape_portable() {
  return {4, multiply_float8_portable<kRows, 4>, multiply_float8_portable<kRows, 1>};
}

constexpr Float8Kernels kFloat8Portable = {
    1,
    4,
    4,
    prepare_float8_portable,
    {float8_shape_portable<1>(), float8_shape_portable<2>(), float8_shape_portable<4>(), {}},
    largest_portable,
    round_float8_portable};

}  // namespace
}  // namespace mixed_gemm::cpu
