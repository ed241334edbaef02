// also: nvcc
// What a zero point folded into the constants gives, against converting and subtracting, bit by
// bit.
#include <gtest/gtest.h>

#include "dequant/offset_converter.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, int kBitsValue>
struct OffsetCase {
  using Format = FormatType;
  static constexpr int kBits = kBitsValue;
};

template <typename C>
class OffsetConverterTest : public testing::Test {
 protected:
  using Format = typename C::Format;
  using Converter = OffsetConverter<Format, C::kBits>;
  static constexpr int kBits = C::kBits;

  // Each stored value in each slot of the word, beside others.
  static void expect_equal(PairOffsets offsets, uint32_t zero_pair) {
    for (uint32_t value = 0; value < (1u << kBits); ++value) {
      uint32_t word = 0x9e3779b9u * (value + 1);
      for (int slot = 0; slot < 32 / kBits; ++slot) {
        const uint32_t mask = ((1u << kBits) - 1) << (slot * kBits);
        expect_equal((word & ~mask) | (value << (slot * kBits)), offsets, zero_pair);
      }
    }
  }

  static void expect_equal(uint32_t word, PairOffsets offsets, uint32_t zero_pair) {
    const uint32_t unit = encode<Format>(Converter::kUnit) * 0x10001u;
    for (int step = 0; step < kStepsPerWord<kBits>; ++step) {
      uint32_t folded[2], plain[2];
      Converter::convert_step(word, step, offsets, folded);
      IntegerConverter<Format, kBits>::convert_step(word, step, plain);
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t difference = sub_x2<Format>(plain[pair], zero_pair);
        ASSERT_EQ(folded[pair], mul_x2<Format>(difference, unit))
            << std::hex << "word " << word << " zero " << zero_pair << " pair " << pair;
      }
    }
  }
};

using OffsetCases =
    testing::Types<OffsetCase<Half, 4>, OffsetCase<Half, 8>, OffsetCase<BFloat16, 4>>;
TYPED_TEST_SUITE(OffsetConverterTest, OffsetCases, );

TYPED_TEST(OffsetConverterTest, WithoutZeroPointIsTheConverter) {
  this->expect_equal(PairOffsets::constant(TestFixture::Converter::kPacked), 0u);
}

// Of all 16-bit floats: those said to fit do. Infinities are left out: they fit nowhere.
TYPED_TEST(OffsetConverterTest, WhatFitsIsSubtracted) {
  using Format = typename TypeParam::Format;
  int fitting = 0;
  for (uint32_t zero = 0; zero < 0x10000u; ++zero) {
    const FoldedZero folded = fold_zero<Format, TypeParam::kBits>(zero);
    if (!std::isfinite(decode<Format>(static_cast<uint16_t>(zero)))) {
      ASSERT_FALSE(folded.fits) << zero;
    }
    if (!folded.fits) continue;
    ++fitting;
    // Every word for a few, two words for the others: the constants are what differs.
    const auto offsets = PairOffsets::unpack(folded.packed);
    if (fitting % 64 == 0) this->expect_equal(offsets, zero * 0x10001u);
    this->expect_equal(0x01234567u, offsets, zero * 0x10001u);
    this->expect_equal(0x89abcdefu, offsets, zero * 0x10001u);
  }
  ASSERT_GT(fitting, 250);
}

TYPED_TEST(OffsetConverterTest, WholeNumbersOfTheSizeOfWeightsFit) {
  using Format = typename TypeParam::Format;
  constexpr int kHigh = 1 << (TypeParam::kBits - 1);
  for (int zero = -kHigh; zero <= kHigh; ++zero) {
    const auto folded = fold_zero<Format, TypeParam::kBits>(encode<Format>(zero));
    ASSERT_TRUE(folded.fits) << zero;
  }
  ASSERT_TRUE((fold_zero<Format, TypeParam::kBits>(0x8000u).fits)) << "-0";
}

TYPED_TEST(OffsetConverterTest, FractionsDoNotFit) {
  using Format = typename TypeParam::Format;
  for (const double zero : {0.3, -7.4, 5.0625, 1e-3}) {
    ASSERT_FALSE((fold_zero<Format, TypeParam::kBits>(encode<Format>(zero)).fits)) << zero;
  }
}

}  // namespace
}  // namespace mixed_gemm
