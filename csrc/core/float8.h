// fp8 e4m3 (the "fn" kind: no infinities, 0x7f and 0xff are NaN) as bit patterns.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace mixed_gemm {

// Widens exactly: 4 exponent bits of bias 7, 3 mantissa bits, so values are multiples of 2^-9.
inline float decode_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = bits & 0x80 ? -1.f : 1.f;
  if (exponent == 15 && mantissa == 7) return std::nanf("");
  return sign * (exponent ? std::ldexp(8.f + mantissa, exponent - 10)
                          : std::ldexp(static_cast<float>(mantissa), -9));
}

// Rounds to nearest, ties to even; beyond 448 the result is 448, for a NaN it is 0x7f or 0xff.
inline uint8_t encode_e4m3(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7f;
  if (magnitude >= 448) return sign | 0x7e;
  if (magnitude < 0x1p-6f) {  // multiples of 2^-9; 8 of them are the code of 2^-6
    return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 0x1p9f));
  }
  bits &= 0x7fffffff;
  bits += 0x7ffff + (bits >> 20 & 1);
  return sign | static_cast<uint8_t>((bits >> 20) - (120 << 3));
}

}  // namespace mixed_gemm
