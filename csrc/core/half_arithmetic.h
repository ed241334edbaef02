// fp16 and bf16 as bit patterns: conversion, and the packed sub, mul and fma that dequantization
// uses. On the device each is one instruction; the host twin computes in double and rounds once, so
// both give the same bits.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/macros.h"

namespace mixed_gemm {

struct Half {
  static constexpr int kMantissaBits = 10, kExponentBits = 5;
  static constexpr uint32_t kOneX2 = 0x3c003c00u, kMinusOneX2 = 0xbc00bc00u;
};
struct BFloat16 {
  static constexpr int kMantissaBits = 7, kExponentBits = 8;
  static constexpr uint32_t kOneX2 = 0x3f803f80u, kMinusOneX2 = 0xbf80bf80u;
};

// Widens one 16-bit float exactly.
template <typename Format>
inline double decode(uint16_t bits) {
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  constexpr int kTop = (1 << Format::kExponentBits) - 1;
  const int exponent = (bits >> Format::kMantissaBits) & kTop;
  const int mantissa = bits & ((1 << Format::kMantissaBits) - 1);
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == kTop) return mantissa ? std::nan("") : sign * INFINITY;
  const int scale = (exponent ? exponent : 1) - kBias - Format::kMantissaBits;
  return sign * std::ldexp(mantissa + (exponent ? (1 << Format::kMantissaBits) : 0), scale);
}

// Rounds to nearest, ties to even, with subnormals and overflow to infinity.
template <typename Format>
inline uint16_t encode(double value) {
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  constexpr int kTop = (1 << Format::kExponentBits) - 1;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = static_cast<uint16_t>(kTop << Format::kMantissaBits);
  if (std::isnan(value)) return static_cast<uint16_t>(0x7fff);
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | infinity;
  int exponent = magnitude > 0 ? std::ilogb(magnitude) : 1 - kBias;
  if (exponent < 1 - kBias) exponent = 1 - kBias;
  // In units of the last place; nearbyint rounds half to even. A carry moves into the exponent
  // field by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, Format::kMantissaBits - exponent));
  const int64_t bits = static_cast<int64_t>(units) +
                       (static_cast<int64_t>(exponent + kBias - 1) << Format::kMantissaBits);
  return sign | (bits >= infinity ? infinity : static_cast<uint16_t>(bits));
}

// x * y + z of 16-bit floats, rounded to odd in double: a second rounding to 16 bits is then the
// only one that counts (Boldo and Melquiond 2008). The product is exact in double; TwoSum finds
// what the addition lost.
inline double fma_round_to_odd(double x, double y, double z) {
  const double product = x * y;
  const double sum = product + z;
  if (!std::isfinite(sum)) return sum;
  const double z_part = sum - product;
  const double lost = (product - (sum - z_part)) + (z - z_part);
  uint64_t bits;
  std::memcpy(&bits, &sum, sizeof(bits));
  if (lost == 0 || (bits & 1)) return sum;
  return std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
}

// d = a * b + c on both 16-bit halves of a word, one rounding each.
template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t fma_x2(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  uint32_t d;
  if constexpr (Format::kMantissaBits == Half::kMantissaBits) {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
#else
  const auto one = [&](int shift) {
    const auto at = [shift](uint32_t word) {
      return decode<Format>(static_cast<uint16_t>(word >> shift));
    };
    return static_cast<uint32_t>(encode<Format>(fma_round_to_odd(at(a), at(b), at(c)))) << shift;
  };
  return one(0) | one(16);
#endif
}

// sm_80 has packed bf16 fma but no packed bf16 add or mul; -0 as the addend keeps the sign of a
// zero product.
template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t mul_x2(uint32_t a, uint32_t b) {
  return fma_x2<Format>(a, b, 0x80008000u);
}

template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t sub_x2(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  if constexpr (Format::kMantissaBits == Half::kMantissaBits) {
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
  }
#if __CUDA_ARCH__ >= 900  // one operand fewer to hold
  uint32_t d;
  asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#endif
#endif
  return fma_x2<Format>(b, Format::kMinusOneX2, a);
}

// The smaller one of each half; a number rather than a NaN. Needs sm_80.
template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t min_x2(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t d;
  if constexpr (Format::kMantissaBits == Half::kMantissaBits) {
    asm("min.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("min.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
#else
  const auto one = [&](int shift) {
    const auto x = static_cast<uint16_t>(a >> shift), y = static_cast<uint16_t>(b >> shift);
    const double left = decode<Format>(x), right = decode<Format>(y);
    const bool first = std::isnan(right) || left <= right;
    return static_cast<uint32_t>(first ? x : y) << shift;
  };
  return one(0) | one(16);
#endif
}

}  // namespace mixed_gemm
