// also: nvcc
// The list of weight types, and the templates with a type that is no integer: one of this file,
// whose codes lie elsewhere in a word.
#include "core/weight_type.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "dequant/folding_converter.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {

// A sign and three bits of magnitude, the signs of a word in its top byte.
struct ToySigned {
  static constexpr int kBits = 4, kBias = 0;
  static constexpr bool kIsInteger = false;
  static constexpr float value(uint32_t code) {
    return static_cast<float>(code & 7) * (code & 8 ? -1.f : 1.f);
  }
};

template <>
struct Places<ToySigned> {
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t spread(uint32_t code, int slot) {
    return (code & 7) << (3 * slot) | code >> 3 << (24 + slot);
  }
  static constexpr MIXED_GEMM_HOST_DEVICE uint32_t gather(uint32_t word, int slot) {
    return (word >> (3 * slot) & 7) | (word >> (24 + slot) & 1) << 3;
  }
};

template <typename Format>
struct WeightConverter<Format, ToySigned> {
  static void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    using Layout = WeightLayout<ToySigned>;
    for (int p = 0; p < 2; ++p) {
      pairs[p] = 0;
      for (int member = 0; member < 2; ++member) {
        const int slot = Layout::slot_of(2 * step + p, member);
        const float value = ToySigned::value(Places<ToySigned>::gather(word, slot));
        pairs[p] |= static_cast<uint32_t>(encode<Format>(value)) << (16 * member);
      }
    }
  }
};

namespace {

template <typename Weight>
class WeightTypeTest : public testing::Test {};
using AllWeights = testing::Types<Int4, Int8, E2M1, E4M3, NF4, FP4>;
TYPED_TEST_SUITE(WeightTypeTest, AllWeights, );

TYPED_TEST(WeightTypeTest, IsARowOfTheList) {
  constexpr WeightType kType = TypeParam::kType;
  static_assert(std::is_same_v<WeightOf<kType>, TypeParam>, "by its enumerator");
  constexpr WeightInfo kInfo = weight_info(kType);
  EXPECT_STREQ(kInfo.name, TypeParam::kName);
  EXPECT_EQ(kInfo.bits, TypeParam::kBits);
  EXPECT_EQ(kInfo.bias, TypeParam::kBias);
  EXPECT_EQ(kInfo.is_integer, TypeParam::kIsInteger);
  EXPECT_EQ(with_weight(kType, [](auto weight) { return std::string(decltype(weight)::kName); }),
            TypeParam::kName);
  if (TypeParam::kIsInteger) {
    EXPECT_EQ(integer_weight(TypeParam::kBits), kType);
  }
  EXPECT_EQ(TypeParam::value(TypeParam::kZero), 0) << "padding is the code of 0";
}

// Each code in each slot beside any other: its bits are its own, and all slots make the word.
template <typename Weight>
void expect_places_of_their_own() {
  using Layout = WeightLayout<Weight>;
  uint32_t all = 0;
  for (int slot = 0; slot < Layout::kPerWord; ++slot) {
    const uint32_t ones = Places<Weight>::spread(Layout::kMask, slot);
    EXPECT_EQ(all & ones, 0u) << slot;
    all |= ones;
    for (uint32_t code = 0; code <= Layout::kMask; ++code) {
      const uint32_t bits = Places<Weight>::spread(code, slot);
      ASSERT_EQ(Places<Weight>::gather(bits, slot), code);
      ASSERT_EQ(Places<Weight>::gather(bits | ~ones, slot), code);
      ASSERT_EQ(bits & ~ones, 0u);
    }
  }
  EXPECT_EQ(all, ~0u);
}
TYPED_TEST(WeightTypeTest, HasPlacesForEveryCode) { expect_places_of_their_own<TypeParam>(); }
TEST(WeightType, OfAnotherOrderHasPlacesForEveryCode) { expect_places_of_their_own<ToySigned>(); }

// The places of integers in words never change: files hold them.
TEST(WeightType, SlotsOfIntegersAreNeighbours) {
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(Places<Int4>::spread(0xb, slot), 0xbu << (4 * slot));
    EXPECT_EQ(Places<Int8>::spread(0xb7, slot % 4), 0xb7u << (8 * (slot % 4)));
  }
}

// Kernels that fold zero points take it as it is, and scale sums by 1.
TEST(WeightType, WithoutZeroPointsFoldsNothing) {
  using Converter = FoldingConverter<Half, ToySigned>;
  static_assert(!kHasOffsets<Half, ToySigned> && !kHasOffsets<BFloat16, ToySigned>, "");
  EXPECT_EQ(Converter::kResultScale, 1);
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t word = Places<ToySigned>::spread(code, 5);  // pair 1, second member
    uint32_t pairs[2];
    Converter::convert_step(word, 0, pairs);
    EXPECT_EQ(decode<Half>(static_cast<uint16_t>(pairs[1] >> 16)), ToySigned::value(code));
    EXPECT_EQ(decode<Half>(static_cast<uint16_t>(pairs[1])), 0);
    EXPECT_EQ(pairs[0], 0u);
  }
}

}  // namespace
}  // namespace mixed_gemm
