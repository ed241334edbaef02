// also: nvcc
// Every converter, exact over all inputs of its fields: the expected value comes from the layout
// (which slot of the word is which member of which pair), not from the converter.
#include <gtest/gtest.h>

#include <array>

#include "core/half_arithmetic.h"
#include "dequant/integer_converter.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, int kBitsValue>
struct Case {
  using Format = FormatType;
  static constexpr int kBits = kBitsValue;
};

template <typename C>
class IntegerConverterTest : public testing::Test {
 protected:
  using Layout = WeightLayout<C::kBits>;

  // Bits, not values: -0 would change the sign of a product with a zero activation.
  static void expect_exact(uint32_t word) {
    uint32_t pairs[Layout::kPerWord / 2];
    convert_word<typename C::Format, C::kBits>(word, pairs);
    for (int pair = 0; pair < Layout::kPerWord / 2; ++pair) {
      for (int member = 0; member < 2; ++member) {
        const uint32_t stored = word >> (C::kBits * Layout::slot_of(pair, member)) & Layout::kMask;
        const int q = static_cast<int>(stored) - Layout::kBias;
        ASSERT_EQ(pairs[pair] >> (16 * member) & 0xffff, encoded(q))
            << std::hex << "word " << word << " pair " << pair << " member " << member;
      }
    }
  }

  static uint16_t encoded(int q) {
    static const auto table = [] {
      std::array<uint16_t, 2 * Layout::kBias> values{};
      for (int i = -Layout::kBias; i < Layout::kBias; ++i) {
        values[i + Layout::kBias] = encode<typename C::Format>(i);
      }
      return values;
    }();
    return table[q + Layout::kBias];
  }
};

using Cases = testing::Types<Case<Half, 4>, Case<Half, 8>, Case<BFloat16, 4>, Case<BFloat16, 8>>;
TYPED_TEST_SUITE(IntegerConverterTest, Cases, );

TYPED_TEST(IntegerConverterTest, EveryIntegerIsExactInTheFormat) {
  using Layout = WeightLayout<TypeParam::kBits>;
  for (int q = -Layout::kBias; q < Layout::kBias; ++q) {
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
  using Layout = WeightLayout<TypeParam::kBits>;
  for (int64_t k = 0; k < Layout::kBlockK; ++k) {
    const auto place = Layout::place(0, k, 64);
    const uint32_t stored = 1 + Layout::kBias;
    const uint32_t zeros = TypeParam::kBits == 4 ? 0x88888888u : 0x80808080u;
    const uint32_t mask = Layout::kMask << (TypeParam::kBits * place.slot);
    uint32_t pairs[Layout::kPerWord / 2];
    convert_word<typename TypeParam::Format, TypeParam::kBits>(
        (zeros & ~mask) | stored << (TypeParam::kBits * place.slot), pairs);
    for (int64_t pair = 0; pair < Layout::kPerWord / 2; ++pair) {
      const uint32_t one = static_cast<uint32_t>(this->encoded(1)) << (16 * (k % 2));
      EXPECT_EQ(pairs[pair], pair == k / 8 ? one : 0u) << "k=" << k;
    }
    EXPECT_EQ(place.word, k % 8 / 2) << "lane of the quad, k=" << k;
  }
}

}  // namespace
}  // namespace mixed_gemm
