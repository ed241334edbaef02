// also: nvcc
// AutoAWQ words to pairs along K: the expected value comes from the format's order of columns, not
// from the converter.
#include "awq/awq_converter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace mixed_gemm {
namespace {

// AutoAWQ's packing: nibble i of a word, from the lowest bits on, is this column of the octet.
constexpr int kColumnOfNibble[] = {0, 2, 4, 6, 1, 3, 5, 7};

uint32_t code_of(uint32_t word, int column) {
  for (int nibble = 0; nibble < 8; ++nibble) {
    if (kColumnOfNibble[nibble] == column) return word >> (4 * nibble) & 0xf;
  }
  return ~0u;
}

template <typename Format>
class AwqConverterTest : public testing::Test {
 protected:
  using Converter = AwqConverter<Format>;

  // The member of a pair: 0 is k, 1 is k + 1.
  static double member(uint32_t pair, int i) {
    return decode<Format>(static_cast<uint16_t>(pair >> (16 * i)));
  }
  static constexpr double kBias = 1 << Format::kMantissaBits;

  static void expect_codes(uint32_t word_k, uint32_t word_next) {
    const auto halves = Converter::interleave(word_k, word_next);
    for (int t = 0; t < 4; ++t) {
      const uint32_t even = Converter::biased(halves.low, t);
      const uint32_t odd = Converter::biased(halves.high, t);
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = i == 0 ? word_k : word_next;
        ASSERT_EQ(member(even, i), kBias + code_of(word, 2 * t))
            << std::hex << "words " << word_k << ' ' << word_next << " column " << 2 * t;
        ASSERT_EQ(member(odd, i), kBias + code_of(word, 2 * t + 1))
            << std::hex << "words " << word_k << ' ' << word_next << " column " << 2 * t + 1;
      }
    }
  }

  // The other half of the word is another problem, so that what leaks between them shows.
  static void expect_weights(uint32_t code, uint32_t zero, uint16_t scale, uint16_t other_scale) {
    const uint32_t codes = Converter::biased(code | (15 - code) << 16, 0);
    const uint32_t zeros = Converter::biased(zero | (zero ^ 5) << 16, 0);
    const uint32_t scales = scale | static_cast<uint32_t>(other_scale) << 16;
    const uint32_t pair = Converter::dequantize(codes, zeros, scales);
    ASSERT_EQ(pair & 0xffff, rounded(code, zero, scale)) << code << ' ' << zero << ' ' << scale;
    ASSERT_EQ(pair >> 16, rounded(15 - code, zero ^ 5, other_scale));
  }

  // The exact weight, rounded once: 5 bits of a difference times 11 fit a double.
  static uint32_t rounded(uint32_t code, uint32_t zero, uint16_t scale) {
    const double difference = static_cast<int>(code) - static_cast<int>(zero);
    return encode<Format>(difference * decode<Format>(scale));
  }
};

using Formats = testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(AwqConverterTest, Formats, );

// One pair of bytes at a time takes all its values over three backgrounds, in both words.
TYPED_TEST(AwqConverterTest, CodesAreTheColumnsOfTheFormat) {
  for (const uint32_t background : {0x00000000u, 0xffffffffu, 0x5aa5c33cu}) {
    for (int first = 0; first < 4; ++first) {
      for (int second = 0; second < 4; ++second) {
        for (uint32_t value = 0; value < 0x10000; value += 7) {  // coprime: every byte comes up
          const uint32_t word_k = (background & ~(0xffu << (8 * first))) | (value & 0xff)
                                                                               << (8 * first);
          const uint32_t word_next =
              (~background & ~(0xffu << (8 * second))) | value >> 8 << (8 * second);
          this->expect_codes(word_k, word_next);
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

TYPED_TEST(AwqConverterTest, WeightsAreExactForEveryCodeAndZero) {
  const uint16_t one = encode<TypeParam>(1), minus_two = encode<TypeParam>(-2);
  for (uint32_t code = 0; code < 16; ++code) {
    for (uint32_t zero = 0; zero < 16; ++zero) this->expect_weights(code, zero, one, minus_two);
  }
}

// Every difference with every scale that files may hold: subnormals, zeros of both signs and
// negative ones included.
TYPED_TEST(AwqConverterTest, WeightsAreRoundedOnceForEveryFiniteScale) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto scale = static_cast<uint16_t>(bits);
    const auto other = static_cast<uint16_t>(bits ^ 0x8021);
    if (!std::isfinite(decode<TypeParam>(scale)) || !std::isfinite(decode<TypeParam>(other))) {
      continue;
    }
    for (int difference = -15; difference <= 15; ++difference) {
      this->expect_weights(std::max(difference, 0), std::max(-difference, 0), scale, other);
    }
    if (this->HasFatalFailure()) return;
  }
}

// The kernel makes one word of zero points serve both k of a pair.
TYPED_TEST(AwqConverterTest, AZeroWordWithItselfGivesBothMembersTheSameZero) {
  using Converter = AwqConverter<TypeParam>;
  const uint32_t word = 0xfedcba98u;
  const auto halves = Converter::interleave(word, word);
  for (int t = 0; t < 4; ++t) {
    for (const uint32_t pair :
         {Converter::biased(halves.low, t), Converter::biased(halves.high, t)}) {
      EXPECT_EQ(pair & 0xffff, pair >> 16);
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
