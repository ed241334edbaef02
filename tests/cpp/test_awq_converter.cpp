// also: nvcc
// AutoAWQ words to pairs along K: the expected value comes from the format's order of columns, not
// from the converter.
#include "awq/converter.h"

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
  // Unpacks as the kernel does: columns 2 t and 2 t + 1 of a word, then each for both k.
  static uint32_t zero_of(uint32_t zero_word, int column) {
    return Converter::both(Converter::zeros(zero_word, column / 2), column % 2 == 1);
  }

  static void expect_differences(uint32_t word_k, uint32_t word_next, uint32_t zero_word) {
    const auto halves = Converter::interleave(word_k, word_next);
    for (int column = 0; column < 8; ++column) {
      const uint32_t pair = Converter::difference(column % 2 == 0 ? halves.low : halves.high,
                                                  column / 2, zero_of(zero_word, column));
      const double zero = code_of(zero_word, column);
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = i == 0 ? word_k : word_next;
        ASSERT_EQ(member(pair, i), code_of(word, column) - zero)
            << std::hex << "words " << word_k << ' ' << word_next << " zeros " << zero_word
            << " column " << column;
      }
    }
  }

  // A word with the code in column `column` of the format; the others hold 15 less its value.
  static uint32_t word_with(uint32_t code, int column) {
    uint32_t word = 0;
    for (int nibble = 0; nibble < 8; ++nibble) {
      word |= (kColumnOfNibble[nibble] == column ? code : 15 - code) << (4 * nibble);
    }
    return word;
  }

  // The other half of the word is another problem, so that a leak between them shows.
  static void expect_weights(uint32_t code, uint32_t zero, uint16_t scale, uint16_t other_scale) {
    for (int column = 0; column < 8; ++column) {
      const auto halves =
          Converter::interleave(word_with(code, column), word_with(15 - code, column));
      const uint32_t difference =
          Converter::difference(column % 2 == 0 ? halves.low : halves.high, column / 2,
                                zero_of(word_with(zero, column), column));
      const uint32_t scales = scale | static_cast<uint32_t>(other_scale) << 16;
      const uint32_t pair = mul_x2<Format>(difference, scales);
      ASSERT_EQ(pair & 0xffff, rounded(code, zero, scale)) << code << ' ' << zero << ' ' << scale;
      ASSERT_EQ(pair >> 16, rounded(15 - code, zero, other_scale));
    }
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
          this->expect_differences(word_k, word_next, value * 0x9e3779b9u);
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

// The kernel makes one register of zero points serve two columns.
TYPED_TEST(AwqConverterTest, EitherHalfCanBeBoth) {
  using Converter = AwqConverter<TypeParam>;
  EXPECT_EQ(Converter::both(0x12345678u, false), 0x56785678u);
  EXPECT_EQ(Converter::both(0x12345678u, true), 0x12341234u);
}

}  // namespace
}  // namespace mixed_gemm
