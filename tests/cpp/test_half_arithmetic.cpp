// also: nvcc
// fp16 and bf16 as bit patterns: every pattern and every rounding boundary of the conversions, and
// the packed arithmetic against exact integers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "core/half_arithmetic.h"

namespace mixed_gemm {
namespace {

template <typename Format>
struct Limits {
  static constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  static constexpr uint16_t kInfinity = ((1 << Format::kExponentBits) - 1) << Format::kMantissaBits;
};

uint32_t pair(uint32_t low, uint32_t high) { return low | high << 16; }

template <typename Format>
class HalfFormat : public testing::Test {};
using Formats = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(HalfFormat, Formats, );

// Consecutive patterns differ by one unit in the last place, which doubles with each exponent: with
// the value of one pattern this determines all of them.
TYPED_TEST(HalfFormat, DecodeStepsByOneUlpThroughAllPatterns) {
  using L = Limits<TypeParam>;
  EXPECT_EQ(decode<TypeParam>(0), 0.0);
  EXPECT_EQ(decode<TypeParam>(L::kBias << TypeParam::kMantissaBits), 1.0);
  for (uint32_t bits = 0; bits + 1 < L::kInfinity; ++bits) {
    const int exponent = std::max<int>(bits >> TypeParam::kMantissaBits, 1);
    const double ulp = std::ldexp(1.0, exponent - L::kBias - TypeParam::kMantissaBits);
    ASSERT_EQ(decode<TypeParam>(bits + 1) - decode<TypeParam>(bits), ulp) << std::hex << bits;
  }
}

TYPED_TEST(HalfFormat, EncodeInvertsDecodeForAllPatterns) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double value = decode<TypeParam>(static_cast<uint16_t>(bits));
    if ((bits & 0x7fff) > Limits<TypeParam>::kInfinity) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << bits;
      ASSERT_EQ(encode<TypeParam>(value), 0x7fff);  // the canonical NaN of the device
    } else {
      ASSERT_EQ(std::signbit(value), bits >= 0x8000);
      ASSERT_EQ(encode<TypeParam>(value), bits);
    }
  }
}

// Between every two neighbours, subnormal ones and the step to infinity included.
TYPED_TEST(HalfFormat, EncodeRoundsToNearestEvenAtEveryBoundary) {
  for (uint32_t bits = 0; bits < Limits<TypeParam>::kInfinity; ++bits) {
    const double low = decode<TypeParam>(bits);
    const int exponent = std::max<int>(bits >> TypeParam::kMantissaBits, 1);
    const double tie =
        low + std::ldexp(0.5, exponent - Limits<TypeParam>::kBias - TypeParam::kMantissaBits);
    const uint32_t even = bits + (bits & 1);
    ASSERT_EQ(encode<TypeParam>(tie), even) << std::hex << bits;
    ASSERT_EQ(encode<TypeParam>(std::nextafter(tie, 0.0)), bits) << std::hex << bits;
    ASSERT_EQ(encode<TypeParam>(std::nextafter(tie, INFINITY)), bits + 1) << std::hex << bits;
    ASSERT_EQ(encode<TypeParam>(-tie), 0x8000 | even) << std::hex << bits;
  }
}

TYPED_TEST(HalfFormat, EncodeKeepsZeroSignsAndInfinities) {
  EXPECT_EQ(encode<TypeParam>(0.0), 0);
  EXPECT_EQ(encode<TypeParam>(-0.0), 0x8000);
  EXPECT_EQ(encode<TypeParam>(-1e-300), 0x8000);
  EXPECT_EQ(encode<TypeParam>(1e300), Limits<TypeParam>::kInfinity);
  EXPECT_EQ(encode<TypeParam>(-INFINITY), 0x8000 | Limits<TypeParam>::kInfinity);
}

TEST(BFloat16Decode, IsTheUpperHalfOfAFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t word = bits << 16;
    float value;
    std::memcpy(&value, &word, 4);
    if (std::isnan(value)) continue;
    ASSERT_EQ(decode<BFloat16>(bits), value) << std::hex << bits;
  }
}

// x * y + z in exact integers, rounded once. Operands have an exponent field of at least
// kLeastExponent (for fp16 that is all of them), so that everything fits into 128 bits.
template <typename Format>
struct ExactFma {
  static constexpr bool kIsHalf = Format::kMantissaBits == Half::kMantissaBits;
  static constexpr int kLeastExponent = kIsHalf ? 1 : 100;
  static constexpr int kGreatestExponent = kIsHalf ? 30 : 140;
  // One integer unit is 2^kUnit for an operand, its square for a product.
  static constexpr int kUnit = kLeastExponent - Limits<Format>::kBias - Format::kMantissaBits;

  static __int128 units(uint16_t bits) {
    const int exponent = (bits & 0x7fff) >> Format::kMantissaBits;
    const int fraction = bits & ((1 << Format::kMantissaBits) - 1);
    const __int128 mantissa = exponent ? fraction + (1 << Format::kMantissaBits) : fraction;
    const __int128 magnitude = mantissa << (exponent ? exponent - kLeastExponent : 0);
    return bits & 0x8000 ? -magnitude : magnitude;
  }

  static uint16_t round(__int128 sum) {
    const uint16_t sign = sum < 0 ? 0x8000 : 0;
    unsigned __int128 magnitude = sum < 0 ? -sum : sum;
    int top = 0;
    while (magnitude >> top > 1) ++top;
    int shift = top - Format::kMantissaBits;
    if (kIsHalf) shift = std::max(shift, -kUnit);  // the spacing of subnormals
    if (shift < 0) {
      magnitude <<= -shift;
    } else if (shift > 0) {
      const unsigned __int128 one = 1, rest = magnitude & ((one << shift) - 1);
      magnitude >>= shift;
      const unsigned __int128 half = one << (shift - 1);
      if (rest > half || (rest == half && (magnitude & 1))) ++magnitude;
    }
    const int field = shift + 2 * kUnit + Limits<Format>::kBias + Format::kMantissaBits - 1;
    const int64_t bits =
        static_cast<int64_t>(magnitude) + (static_cast<int64_t>(field) << Format::kMantissaBits);
    return sign | static_cast<uint16_t>(std::min<int64_t>(bits, Limits<Format>::kInfinity));
  }

  static uint16_t fma(uint16_t x, uint16_t y, uint16_t z) {
    const __int128 unit = 1;
    const __int128 product = units(x) * units(y), addend = units(z) * (unit << -kUnit);
    if (product + addend != 0) return round(product + addend);
    const bool both_negative_zero = product == 0 && ((x ^ y) & 0x8000) && z == 0x8000;
    return both_negative_zero ? 0x8000 : 0;
  }

  static uint16_t random_operand(std::mt19937& random) {
    const uint32_t exponents = kGreatestExponent - kLeastExponent + (kIsHalf ? 2 : 1);
    const uint32_t exponent = kGreatestExponent - random() % exponents;
    const uint32_t fraction = random() & ((1u << Format::kMantissaBits) - 1);
    // Few set bits, often: sums then fall on ties.
    const uint32_t sparse = random() % 2 ? fraction & (fraction - 1) & random() : fraction;
    return static_cast<uint16_t>((random() & 0x8000) | exponent << Format::kMantissaBits | sparse);
  }
};

TYPED_TEST(HalfFormat, FmaRoundsTheExactSumOnce) {
  using Exact = ExactFma<TypeParam>;
  std::mt19937 random(11);
  for (int i = 0; i < 400000; ++i) {
    uint16_t x[2], y[2], z[2];
    for (int h = 0; h < 2; ++h) {
      x[h] = Exact::random_operand(random);
      y[h] = Exact::random_operand(random);
      z[h] = Exact::random_operand(random);
    }
    const uint32_t got = fma_x2<TypeParam>(pair(x[0], x[1]), pair(y[0], y[1]), pair(z[0], z[1]));
    ASSERT_EQ(got & 0xffff, Exact::fma(x[0], y[0], z[0]))
        << std::hex << x[0] << " * " << y[0] << " + " << z[0];
    ASSERT_EQ(got >> 16, Exact::fma(x[1], y[1], z[1]))
        << std::hex << x[1] << " * " << y[1] << " + " << z[1];
  }
}

TYPED_TEST(HalfFormat, MulAndSubRoundTheExactResultOnce) {
  using Exact = ExactFma<TypeParam>;
  constexpr uint16_t kMinusOne = TypeParam::kMinusOneX2 & 0xffff;
  std::mt19937 random(12);
  for (int i = 0; i < 400000; ++i) {
    const uint16_t x = Exact::random_operand(random), y = Exact::random_operand(random);
    const uint16_t product = Exact::fma(x, y, 0x8000), difference = Exact::fma(y, kMinusOne, x);
    ASSERT_EQ(mul_x2<TypeParam>(pair(x, y), pair(y, x)), pair(product, product))
        << std::hex << x << " * " << y;
    ASSERT_EQ(sub_x2<TypeParam>(pair(x, y), pair(y, x)) & 0xffff, difference)
        << std::hex << x << " - " << y;
  }
}

TYPED_TEST(HalfFormat, SpecialValuesFollowIeee) {
  const uint16_t inf = Limits<TypeParam>::kInfinity, minus_inf = inf | 0x8000;
  const uint16_t one = encode<TypeParam>(1), two = encode<TypeParam>(2);
  const uint16_t largest = inf - 1, smallest = 1;
  struct {
    uint16_t x, y, z, expected;
  } const cases[] = {
      {inf, one, one, inf},
      {inf, one, minus_inf, 0x7fff},
      {inf, 0, one, 0x7fff},
      {0x7fff, one, one, 0x7fff},
      {largest, two, 0, inf},
      {largest, two, minus_inf, minus_inf},
      {largest, two, uint16_t(largest | 0x8000), largest},
      {one, smallest, 0, smallest},
      {smallest, encode<TypeParam>(0.5), 0, 0},
      {0x8000, one, 0x8000, 0x8000},
      {0x8000, one, 0, 0},
      {one, one, encode<TypeParam>(-1), 0},
      {smallest, encode<TypeParam>(-0.25), 0, 0x8000},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(fma_x2<TypeParam>(pair(c.x, c.x), pair(c.y, c.y), pair(c.z, c.z)),
              pair(c.expected, c.expected))
        << std::hex << c.x << " * " << c.y << " + " << c.z;
  }
  EXPECT_EQ(mul_x2<TypeParam>(0x80008000u, pair(one, one)), 0x80008000u);
  EXPECT_EQ(sub_x2<TypeParam>(0x80008000u, 0), 0x80008000u);
  EXPECT_EQ(sub_x2<TypeParam>(pair(two, two), pair(two, two)), 0u);
}

// 1.5 * 2.015625 = 3.0234375 lies midway between the bf16 neighbours 3.015625 (odd) and 3.03125
// (even). An addend of 2^-100 decides; a double keeps it only by rounding to odd.
TEST(BFloat16Fma, TieIsBrokenByATinyAddend) {
  const uint16_t x = encode<BFloat16>(1.5), y = encode<BFloat16>(2.015625);
  ASSERT_EQ(decode<BFloat16>(x) * decode<BFloat16>(y), 3.0234375);
  const uint16_t below = encode<BFloat16>(3.015625), above = encode<BFloat16>(3.03125);
  ASSERT_EQ(above, below + 1);
  const uint16_t tiny = encode<BFloat16>(std::ldexp(1.0, -100)), minus_tiny = tiny | 0x8000;
  const auto fma = [](uint16_t a, uint16_t b, uint16_t c) {
    return static_cast<uint16_t>(fma_x2<BFloat16>(a, b, c) & 0xffff);
  };
  EXPECT_EQ(fma(x, y, 0), above);
  EXPECT_EQ(fma(x, y, tiny), above);
  EXPECT_EQ(fma(x, y, minus_tiny), below);
}

}  // namespace
}  // namespace mixed_gemm
