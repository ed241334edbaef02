// also: nvcc
// The constants without a zero point, against the converter, bit by bit.
// test_folding_converter.cpp has those with one.
#include <gtest/gtest.h>

#include "dequant/offset_converter.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, typename WeightType_>
struct OffsetCase {
  using Format = FormatType;
  using Weight = WeightType_;
};

template <typename C>
class OffsetConverterTest : public testing::Test {
 protected:
  using Format = typename C::Format;
  using Converter = ConstantOffsetConverter<Format, typename C::Weight>;
  using Weight = typename C::Weight;

  static void expect_equal(uint32_t word) {
    const uint32_t unit = encode<Format>(Converter::kPairScale) * 0x10001u;
    for (int step = 0; step < kStepsPerWord<Weight>; ++step) {
      uint32_t pairs[2], plain[2];
      Converter::convert_step(word, step, pairs);
      IntegerConverter<Format, Weight>::convert_step(word, step, plain);
      for (int pair = 0; pair < 2; ++pair) {
        ASSERT_EQ(pairs[pair], mul_x2<Format>(plain[pair], unit)) << std::hex << "word " << word;
      }
    }
  }
};

using OffsetCases =
    testing::Types<OffsetCase<Half, Int4>, OffsetCase<Half, Int8>, OffsetCase<BFloat16, Int4>>;
TYPED_TEST_SUITE(OffsetConverterTest, OffsetCases, );

// Each stored value in each slot of the word, beside others.
TYPED_TEST(OffsetConverterTest, IsTheConverter) {
  constexpr int kBits = TypeParam::Weight::kBits;
  for (uint32_t value = 0; value < (1u << kBits); ++value) {
    const uint32_t word = 0x9e3779b9u * (value + 1);
    for (int slot = 0; slot < 32 / kBits; ++slot) {
      const uint32_t mask = ((1u << kBits) - 1) << (slot * kBits);
      this->expect_equal((word & ~mask) | (value << (slot * kBits)));
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
