// also: nvcc
// Every converter, exact over all inputs of its fields: the expected value comes from the layout
// (which slot of the word is which member of which pair), not from the converter.
#include <gtest/gtest.h>

#include <array>

#include "core/half_arithmetic.h"
#include "dequant/integer_converter.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, typename WeightType_>
struct Case {
  using Format = FormatType;
  using Weight = WeightType_;
};

template <typename C>
class IntegerConverterTest : public testing::Test {
 protected:
  using Weight = typename C::Weight;
  using Layout = WeightLayout<Weight>;

  // Compares bits, not values: -0 would change the sign of a product with a zero activation.
  static void expect_exact(uint32_t word) {
    uint32_t pairs[Layout::kPerWord / 2];
    convert_word<typename C::Format, typename C::Weight>(word, pairs);
    for (int pair = 0; pair < Layout::kPerWord / 2; ++pair) {
      for (int member = 0; member < 2; ++member) {
        const uint32_t stored = Places<Weight>::gather(word, Layout::slot_of(pair, member));
        const int q = static_cast<int>(stored) - Weight::kBias;
        ASSERT_EQ(pairs[pair] >> (16 * member) & 0xffff, encoded(q))
            << std::hex << "word " << word << " pair " << pair << " member " << member;
      }
    }
  }

  static uint16_t encoded(int q) {
    static const auto table = [] {
      std::array<uint16_t, 2 * Weight::kBias> values{};
      for (int i = -Weight::kBias; i < Weight::kBias; ++i) {
        values[i + Weight::kBias] = encode<typename C::Format>(i);
      }
      return values;
    }();
    return table[q + Weight::kBias];
  }
};

using Cases =
    testing::Types<Case<Half, Int4>, Case<Half, Int8>, Case<BFloat16, Int4>, Case<BFloat16, Int8>>;
TYPED_TEST_SUITE(IntegerConverterTest, Cases, );

TYPED_TEST(IntegerConverterTest, EveryIntegerIsExactInTheFormat) {
  using Weight = typename TypeParam::Weight;
  for (int q = -Weight::kBias; q < Weight::kBias; ++q) {
    ASSERT_EQ(decode<typename TypeParam::Format>(this->encoded(q)), q);
  }
}

// Any two bytes of the word take all their 2^16 values (for int4: any four nibbles in two bytes)
// while the others hold all zeros, all ones or a mixture: a field that leaks into another shows.
TYPED_TEST(IntegerConverterTest, IsExactForAllValuesOfAnyTwoBytes) {
  for (const uint32_t background : {0x00000000u, 0xffffffffu, 0x5aa5c33cu}) {
    for (int first = 0; first < 4; ++first) {
      for (int second = first + 1; second < 4; ++second) {
        const uint32_t mask = 0xffu << (8 * first) | 0xffu << (8 * second);
        for (uint32_t value = 0; value < 0x10000; ++value) {
          this->expect_exact((background & ~mask) | (value & 0xff) << (8 * first) |
                             (value >> 8) << (8 * second));
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

// Pair p of the result is the fragment register that holds k = 8 p + 2 r, 8 p + 2 r + 1.
TYPED_TEST(IntegerConverterTest, PairsAreTheRowsOfTheMmaFragment) {
  using Weight = typename TypeParam::Weight;
  using Layout = WeightLayout<Weight>;
  for (int64_t k = 0; k < Layout::kBlockK; ++k) {
    const auto place = Layout::place(0, k, 64);
    const uint32_t stored = 1 + Weight::kBias;
    const uint32_t zeros = TypeParam::Weight::kBits == 4 ? 0x88888888u : 0x80808080u;
    const uint32_t mask = Places<Weight>::spread(Layout::kMask, place.slot);
    uint32_t pairs[Layout::kPerWord / 2];
    convert_word<typename TypeParam::Format, typename TypeParam::Weight>(
        (zeros & ~mask) | Places<Weight>::spread(stored, place.slot), pairs);
    for (int64_t pair = 0; pair < Layout::kPerWord / 2; ++pair) {
      const uint32_t one = static_cast<uint32_t>(this->encoded(1)) << (16 * (k % 2));
      EXPECT_EQ(pairs[pair], pair == k / 8 ? one : 0u) << "k=" << k;
    }
    EXPECT_EQ(place.word, k % 8 / 2) << "lane of the quad, k=" << k;
  }
}

}  // namespace
}  // namespace mixed_gemm
