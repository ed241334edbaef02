// also: nvcc
// float8 as bit patterns, and the quotients that the CUDA quantizer rounds to it: products, where
// they change no code, against the division of the formula.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/float8.h"
#include "core/half_arithmetic.h"
#include "problem/quantize.h"
#include "transform/divide_for_float8.h"

namespace mixed_gemm {
namespace {

// The nearest of all finite codes by trial, the even one of two.
uint8_t nearest(float value) {
  int best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 0x7f; ++code) {
    const double d = std::fabs(std::fabs(double{value}) - decode_e4m3(static_cast<uint8_t>(code)));
    if (d < distance || (d == distance && code % 2 == 0)) best = code, distance = d;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(Float8, EncodesWhatItDecodes) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    EXPECT_EQ(encode_e4m3(decode_e4m3(bits)) & 0x7f, bits & 0x7f);
  }
}

TEST(Float8, EncodesTheNearest) {
  std::mt19937 random(0);
  std::uniform_real_distribution<float> exponent(-12, 10);
  for (int i = 0; i < 20000; ++i) {
    float value = std::exp2(exponent(random)) * (random() % 2 ? 1.f : -1.f);
    if (i % 3 == 0) {  // in the middle of two codes, or a unit beside it
      const auto code = static_cast<uint8_t>(random() % 0x7d);
      value = (decode_e4m3(code) + decode_e4m3(static_cast<uint8_t>(code + 1))) / 2;
      if (i % 9 == 3) value = std::nextafter(value, 1000.f);
      if (i % 9 == 6) value = std::nextafter(value, -1000.f);
    }
    EXPECT_EQ(encode_e4m3(value), nearest(value)) << value;
  }
}

// Compares for every scale that `largest` makes and all of these values.
template <typename Value>
void same_codes(float largest, int count, const Value& value) {
  float scale = largest / kMaxFloat8;
  scale = scale < kMinScale ? kMinScale : scale;
  const DivideForFloat8 divide(scale);
  int different = 0;
  for (int i = 0; i + 4 <= count; i += 4) {
    const float a[4] = {value(i), value(i + 1), value(i + 2), value(i + 3)};
    float quotients[4];
    divide(a, quotients);
    for (int j = 0; j < 4; ++j) {
      if (std::fabs(a[j]) > largest) continue;
      different += encode_e4m3(quotients[j]) != encode_e4m3(a[j] / scale);
    }
  }
  EXPECT_EQ(different, 0) << largest;
}

float half_value(int bits) { return static_cast<float>(decode<Half>(static_cast<uint16_t>(bits))); }
float bfloat_value(int bits) {
  return static_cast<float>(decode<BFloat16>(static_cast<uint16_t>(bits)));
}

TEST(DivideForFloat8, HasTheCodesOfTheDivision) {
  constexpr int kHalfInfinity = 0x7c00, kBFloatInfinity = 0x7f80;
  for (int bits = 0; bits < kHalfInfinity; bits += 61) {
    same_codes(half_value(bits), kHalfInfinity, half_value);
  }
  for (int bits = 0; bits < kBFloatInfinity; bits += 61) {
    same_codes(bfloat_value(bits), kBFloatInfinity, bfloat_value);
  }
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int i = 0; i < 200; ++i) {
    const float largest = std::exp2(uniform(random) * 126);
    same_codes(largest, 4000, [&](int) { return largest * uniform(random); });
  }
}

TEST(DivideForFloat8, KeepsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float a[4] = {1.f, infinity, -2.f, nan};
  float quotients[4];
  DivideForFloat8 by_infinity(infinity), by_nan(nan), by_one(1.f);
  by_infinity(a, quotients);
  EXPECT_EQ(quotients[0], 0.f);
  EXPECT_TRUE(std::isnan(quotients[1]));
  EXPECT_TRUE(quotients[2] == 0.f && std::signbit(quotients[2]));
  EXPECT_TRUE(std::isnan(quotients[3]));
  by_nan(a, quotients);
  for (const float q : quotients) EXPECT_TRUE(std::isnan(q));
  by_one(a, quotients);
  EXPECT_EQ(quotients[0], 1.f);
  EXPECT_EQ(quotients[1], infinity);
  EXPECT_TRUE(std::isnan(quotients[3]));
}

}  // namespace
}  // namespace mixed_gemm
