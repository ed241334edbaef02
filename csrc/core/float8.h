// fp8 e4m3 (the "fn" kind: no infinities, 0x7f and 0xff are NaN) as bit patterns.
#pragma once
#include <cmath>
#include <cstdint>

namespace mixed_gemm {

// Exact. 4 exponent bits of bias 7, 3 mantissa bits, so values are multiples of 2^-9.
inline float decode_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = bits & 0x80 ? -1.f : 1.f;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  return sign * (exponent ? std::ldexp(8.f + mantissa, exponent - 10)
                          : std::ldexp(static_cast<float>(mantissa), -9));
}

}  // namespace mixed_gemm
