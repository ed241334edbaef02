// Activations in fp32. They are written with the vector types of the compiler, of any number of
// lanes, so that one text serves every instruction set. The unnamed namespace is explained in
// vector_kernels.h.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm::cpu {
namespace {

template <int kLanes>
struct ActivationVectors {
  using Floats [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
  using Words [[gnu::vector_size(sizeof(int32_t) * kLanes)]] = int32_t;

  // exp(x) in about 2 units of the last place: 2^n exp(r), |r| <= ln(2) / 2, whose series ends at
  // r^7 / 7!, 5e-9 of it. Overflows to infinity and underflows to 0 as expf does; keeps NaN.
  [[gnu::always_inline]] static Floats exp(Floats x) {
    constexpr float kMost = 89, kLeast = -104;  // beyond which it is infinity, or 0
    constexpr float kInteger = 12582912;        // 1.5 * 2^23, to which integers n are added
    constexpr float kHigh = 0.693359375f;       // ln(2) in 10 bits: n times it is exact
    constexpr float kLow = -2.12194440e-4f;     // and the rest
    const Floats zero = {};
    x = x > kMost ? zero + kMost : x;
    x = x < kLeast ? zero + kLeast : x;
    const Floats shifted = x * 1.44269504f + kInteger;
    const Floats n = shifted - kInteger;
    const Floats r = (x - n * kHigh) - n * kLow;
    Floats sum = zero + 1.f / 5040;
    sum = sum * r + 1.f / 720;
    sum = sum * r + 1.f / 120;
    sum = sum * r + 1.f / 24;
    sum = sum * r + 1.f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.f;
    sum = sum * r + 1.f;
    // Two factors, since 2^n itself may be no normal number.
    const Words power = reinterpret_cast<Words>(shifted) - reinterpret_cast<Words>(zero + kInteger);
    const Words half = power >> 1;
    return sum * power_of_two(half) * power_of_two(power - half);
  }

  [[gnu::always_inline]] static Floats power_of_two(Words n) {
    return reinterpret_cast<Floats>((n + 127) << 23);
  }

  // x / (1 + exp(-y)): x times the sigmoid of y.
  [[gnu::always_inline]] static Floats times_sigmoid(Floats x, Floats y) {
    return x / (exp(-y) + 1.f);
  }

  // The area under the bell curve below -|x|: exp(-x^2 / 2) times a polynomial of degree 8 in
  // q = 1 / (1 + 0.33 |x| / sqrt(2)), fitted to within 1e-7 of it for |x| up to 14, where it ends.
  [[gnu::always_inline]] static Floats tail(Floats x) {
    const Floats zero = {}, size = x < 0.f ? -x : x;
    const Floats q = 1.f / (size * (0.33f * 0.70710678f) + 1.f);
    Floats sum = zero + -0.13500148f;
    sum = sum * q + 0.45879129f;
    sum = sum * q + -0.34862316f;
    sum = sum * q + 0.40612450f;
    sum = sum * q + 0.048515566f;
    sum = sum * q + 0.20081547f;
    sum = sum * q + 0.18302484f;
    sum = sum * q + 0.18635301f;
    return 0.5f * sum * q * exp(-0.5f * x * x);
  }

  [[gnu::always_inline]] static Floats gelu(Floats x) {
    const Floats below = tail(x);
    return x * (x < 0.f ? below : 1.f - below);
  }

  [[gnu::always_inline]] static Floats gelu_tanh(Floats x) {
    // (1 + tanh(y)) / 2 is the sigmoid of 2 y.
    return times_sigmoid(x, 1.5957691216057308f * (x + 0.044715f * x * x * x));
  }

  // As epilogue/activation.h.
  template <Activation kActivation>
  [[gnu::always_inline]] static Floats activated(Floats x) {
    const Floats zero = {};
    switch (kActivation) {
      case Activation::kRelu:
        return x < 0.f ? zero : x;
      case Activation::kRelu6:
        return x < 0.f ? zero : x > 6.f ? zero + 6.f : x;
      case Activation::kGelu:
        return gelu(x);
      case Activation::kGeluTanh:
        return gelu_tanh(x);
      case Activation::kSilu:
        return times_sigmoid(x, x);
      case Activation::kIdentity:
        break;
    }
    return x;
  }

  // `count` floats, at most kLanes. Fewer go through the stack: no byte outside is touched.
  [[gnu::always_inline]] static Floats load(const float* from, int64_t count) {
    Floats x = {};
    if (count >= kLanes) {
      __builtin_memcpy(&x, from, sizeof(x));
    } else {
      __builtin_memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
    }
    return x;
  }
  [[gnu::always_inline]] static void store(Floats x, float* to, int64_t count) {
    if (count >= kLanes) {
      __builtin_memcpy(to, &x, sizeof(x));
    } else {
      __builtin_memcpy(to, &x, static_cast<size_t>(count) * sizeof(float));
    }
  }

  template <Activation kActivation>
  static void activate(float* row, int64_t count) {
    for (int64_t i = 0; i < count; i += kLanes) {
      store(activated<kActivation>(load(row + i, count - i)), row + i, count - i);
    }
  }
};

// row[i] becomes its activation.
template <int kLanes>
void activate_row(Activation activation, float* row, int64_t count) {
  using V = ActivationVectors<kLanes>;
  switch (activation) {
    case Activation::kRelu:
      return V::template activate<Activation::kRelu>(row, count);
    case Activation::kRelu6:
      return V::template activate<Activation::kRelu6>(row, count);
    case Activation::kGelu:
      return V::template activate<Activation::kGelu>(row, count);
    case Activation::kGeluTanh:
      return V::template activate<Activation::kGeluTanh>(row, count);
    case Activation::kSilu:
      return V::template activate<Activation::kSilu>(row, count);
    case Activation::kIdentity:
      return;
  }
}

}  // namespace
}  // namespace mixed_gemm::cpu
