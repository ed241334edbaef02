// also: nvcc
// Converters of narrow floats and of books: each code in each place of a word, whatever its
// neighbours are, times a scale is the number that the definition of the format says, rounded as it
// says, to the bit.
#include "dequant/float_converter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "dequant/weight_converter.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, typename WeightType_>
struct FloatCase {
  using Format = FormatType;
  using Weight = WeightType_;
};

template <typename C>
class FloatConverterTest : public testing::Test {
 protected:
  using Format = typename C::Format;
  using Weight = typename C::Weight;
  using Layout = WeightLayout<Weight>;

  // Compares bits: zeros have the signs of their codes. A value of a book is rounded first.
  static void expect_exact(uint32_t word, double scale) {
    const uint32_t scales = encode<Format>(scale) * 0x10001u;
    const auto values = code_values<Format, Weight>(Weight::kType);
    const auto converter = converter_of<WeightConverter<Format, Weight>, Weight>(values);
    for (int step = 0; step < kStepsPerWord<Weight>; ++step) {
      uint32_t pairs[2];
      converter.convert_step(word, step, pairs);
      for (int p = 0; p < 2; ++p) {
        const uint32_t scaled = mul_x2<Format>(pairs[p], scale_of_pairs<Format, Weight>(scales));
        for (int member = 0; member < 2; ++member) {
          const int slot = Layout::slot_of(2 * step + p, member);
          const double value =
              decode<Format>(encode<Format>(Weight::value(Places<Weight>::gather(word, slot))));
          ASSERT_EQ(scaled >> (16 * member) & 0xffff, encode<Format>(value * scale))
              << std::hex << "word " << word << " slot " << slot << " scale " << scale;
        }
      }
    }
  }
};

using FloatCases =
    testing::Types<FloatCase<Half, E2M1>, FloatCase<Half, E4M3>, FloatCase<Half, NF4>,
                   FloatCase<Half, FP4>, FloatCase<BFloat16, E2M1>, FloatCase<BFloat16, E4M3>,
                   FloatCase<BFloat16, NF4>, FloatCase<BFloat16, FP4>>;
TYPED_TEST_SUITE(FloatConverterTest, FloatCases, );

TYPED_TEST(FloatConverterTest, EveryCodeInEveryPlaceIsExact) {
  using Weight = typename TypeParam::Weight;
  using Layout = WeightLayout<Weight>;
  for (int slot = 0; slot < Layout::kPerWord; ++slot) {
    const uint32_t ones = Places<Weight>::spread(Layout::kMask, slot);
    for (uint32_t code = 0; code <= Layout::kMask; ++code) {
      const uint32_t bits = Places<Weight>::spread(code, slot);
      this->expect_exact(bits, 1);
      this->expect_exact(bits | ~ones, 1);
    }
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) this->expect_exact(random(), 1);
}

// The scales that weights are stored with: powers of two, and numbers of 4 bits in the binade below
// 4. Products are rounded once, and of E2M1 they are exact as long as they are normal.
TYPED_TEST(FloatConverterTest, MeetsEveryScaleBelowFour) {
  std::mt19937 random(2);
  for (int exponent = -20; exponent <= 1; ++exponent) {
    for (int mantissa = 8; mantissa < 16; ++mantissa) {
      const double scale = std::ldexp(mantissa / 8.0, exponent);
      for (int i = 0; i < 200; ++i) this->expect_exact(random(), scale);
      this->expect_exact(random(), -scale);
    }
  }
}

// The tables of the formats' documents.
TEST(FloatConverter, ValuesAreThoseOfTheFormats) {
  const std::vector<float> magnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(E2M1::value(code), magnitudes[code]);
    EXPECT_EQ(E2M1::value(code | 8), -magnitudes[code]);
  }
  EXPECT_EQ(E4M3::value(0x01), std::ldexp(1.f, -9));
  EXPECT_EQ(E4M3::value(0x07), std::ldexp(7.f, -9));
  EXPECT_EQ(E4M3::value(0x08), std::ldexp(1.f, -6));
  EXPECT_EQ(E4M3::value(0x38), 1.f);
  EXPECT_EQ(E4M3::value(0x7e), 448.f);
  EXPECT_EQ(E4M3::value(0xfe), -448.f);
  EXPECT_EQ(NF4::value(0), -1.f);
  EXPECT_EQ(NF4::value(8), 0.07958029955625534f);
  EXPECT_EQ(NF4::value(15), 1.f);
  EXPECT_EQ(FP4::value(2), 8.f / 12);
  EXPECT_EQ(FP4::value(9), -0.0625f / 12);
}

}  // namespace
}  // namespace mixed_gemm
