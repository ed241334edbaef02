// also: nvcc
// The pairs of stored values, for each value in each slot of a word.
#include <gtest/gtest.h>

#include "dequant/stored_converter.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, bool kOneScale>
struct StoredCase {
  using Format = FormatType;
  using Converter = StoredConverter<Format, Int4, kOneScale>;
};

template <typename C>
class StoredConverterTest : public testing::Test {};

using StoredCases =
    testing::Types<StoredCase<Half, false>, StoredCase<Half, true>, StoredCase<BFloat16, false>>;
TYPED_TEST_SUITE(StoredConverterTest, StoredCases, );

// Slot p of the low half of a word and its partner in the high half are pair p % 2 of step p / 2.
TYPED_TEST(StoredConverterTest, PairsHoldTheWeightAndTheBiasInTheirUnit) {
  using Converter = typename TypeParam::Converter;
  using Layout = WeightLayout<Int4>;
  for (uint32_t value = 0; value <= Layout::kMask; ++value) {
    for (int slot = 0; slot < Layout::kPerWord; ++slot) {
      const int shift = slot * 4, pair = slot % (Layout::kPerWord / 2);
      const uint32_t others = 0x9e3779b9u * (value + 1) & ~(Layout::kMask << shift);
      uint32_t pairs[2];
      Converter::convert_step(others | value << shift, pair / 2, pairs);
      const bool high = slot >= Layout::kPerWord / 2;
      const auto half = static_cast<uint16_t>(pairs[pair % 2] >> (high ? 16 : 0));
      const double unit = Converter::kPairScale / (pair % 2 == 0 ? Converter::kRatio : 1);
      const double q = static_cast<double>(value) - Int4::kBias;
      ASSERT_EQ(decode<typename TypeParam::Format>(half), (q + Converter::kBias) * unit)
          << "value " << value << " slot " << slot;
    }
  }
}

TEST(StoredConverter, MinusBiasIsInItsUnit) {
  using Converter = StoredConverter<Half, Int4, false>;
  EXPECT_EQ(decode<Half>(Converter::kMinusBiasX2 & 0xffffu),
            -Converter::kBias * Converter::kPairScale);
  EXPECT_EQ(Converter::kMinusBiasX2 >> 16, Converter::kMinusBiasX2 & 0xffffu);
}

}  // namespace
}  // namespace mixed_gemm
