// also: nvcc
// Converters that take the zero point away with the magic number: the expected value comes from the
// layout and from the zero point, in double, not from the converter.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/half_arithmetic.h"
#include "dequant/column_pair.h"
#include "dequant/folding_converter.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

template <typename FormatType, typename WeightType_>
struct FoldingCase {
  using Format = FormatType;
  using Weight = WeightType_;
};

template <typename C>
class FoldingConverterTest : public testing::Test {
 protected:
  using Format = typename C::Format;
  using Weight = typename C::Weight;
  using Layout = WeightLayout<Weight>;
  using Converter = FoldingConverter<Format, typename C::Weight>;
  using Columns = ColumnPair<Format, typename C::Weight, ZeroPoints::kAny>;
  static constexpr int kSteps = 8 / C::Weight::kBits;
  static constexpr bool kFolds = kHasOffsets<Format, typename C::Weight>;
  static constexpr double kRounding = Format::kMantissaBits == 10 ? 0x1p-11 : 0x1p-8;

  static double member(uint32_t pair, int i) {
    return decode<Format>(static_cast<uint16_t>(pair >> (16 * i)));
  }
  static uint32_t both(double value) { return encode<Format>(value) * 0x10001u; }

  // check(q, what `convert` made of it) for all members of a word.
  template <typename Convert, typename Check>
  static void for_each_member(uint32_t word, const Convert& convert, const Check& check) {
    for (int step = 0; step < kSteps; ++step) {
      uint32_t pairs[2];
      convert(word, step, pairs);
      for (int p = 0; p < 2; ++p) {
        for (int i = 0; i < 2; ++i) {
          const int slot = Layout::slot_of(2 * step + p, i);
          const uint32_t stored = Places<Weight>::gather(word, slot);
          check(static_cast<int>(stored) - Weight::kBias, member(pairs[p], i));
        }
      }
    }
  }

  // Words that hold every stored value in every slot, among others.
  static uint32_t word_of(uint32_t value) {
    return C::Weight::kBits == 8
               ? (value | (255 - value) << 8 | (value ^ 0x55) << 16 | (value ^ 0xaa) << 24)
               : (value * 0x01010101u ^ (15 - value) * 0x10101010u);
  }
  static constexpr uint32_t kValues = 1u << C::Weight::kBits;
};

using FoldingCases = testing::Types<FoldingCase<Half, Int4>, FoldingCase<Half, Int8>,
                                    FoldingCase<BFloat16, Int4>, FoldingCase<BFloat16, Int8>>;
TYPED_TEST_SUITE(FoldingConverterTest, FoldingCases, );

// All values of a half while the other one holds their complement.
TYPED_TEST(FoldingConverterTest, WithoutZeroEveryPartIsExact) {
  using Converter = typename TestFixture::Converter;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    this->for_each_member(
        half | ~half << 16,
        [](uint32_t word, int step, uint32_t(&pairs)[2]) {
          Converter::convert_step(word, step, pairs);
        },
        [&](int q, double part) {
          ASSERT_EQ(part * Converter::kResultScale, q) << std::hex << half;
          ASSERT_FALSE(q == 0 && std::signbit(part)) << "-0 for 0";
        });
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(FoldingConverterTest, ZeroPointsOfCheckpointsAreFoldedWhole) {
  using Converter = typename TestFixture::Converter;
  constexpr int kBias = TypeParam::Weight::kBias;
  for (int zero = -kBias; zero < kBias; ++zero) {
    uint32_t minus_rest;
    const PairOffsets offsets =
        Converter::fold(this->both(zero), Converter::kPairScaleX2, minus_rest);
    ASSERT_EQ(minus_rest & 0x7fff7fffu, 0u) << zero;
    for (uint32_t value = 0; value < this->kValues; ++value) {
      this->for_each_member(
          this->word_of(value),
          [&](uint32_t word, int step, uint32_t(&pairs)[2]) {
            Converter::convert_step(word, step, offsets, pairs);
          },
          [&](int q, double part) { ASSERT_EQ(part * Converter::kResultScale, q - zero); });
      if (this->HasFatalFailure()) return;
    }
  }
}

// Whether fractional, huge or tiny: the folded part and the rest make the difference, each rounded
// once.
TYPED_TEST(FoldingConverterTest, AnyFiniteZeroPointIsFoldedAndTheRestIsLeft) {
  using Converter = typename TestFixture::Converter;
  using Format = typename TestFixture::Format;
  const double u = this->kRounding;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double zero = decode<Format>(static_cast<uint16_t>(bits));
    if (!std::isfinite(zero)) continue;
    uint32_t minus_rest;
    const PairOffsets offsets =
        Converter::fold(bits * 0x10001u, Converter::kPairScaleX2, minus_rest);
    const double left = -this->member(minus_rest, 0) * Converter::kResultScale;
    for (const uint32_t value : {0u, 1u, this->kValues / 2, this->kValues - 1}) {
      this->for_each_member(
          this->word_of(value),
          [&](uint32_t word, int step, uint32_t(&pairs)[2]) {
            Converter::convert_step(word, step, offsets, pairs);
          },
          [&](int q, double part) {
            const double exact = q - zero, tiny = 0x1p-125 * Converter::kResultScale;
            if (!std::isfinite(decode<Format>(encode<Format>(exact)))) return;
            ASSERT_NEAR(part * Converter::kResultScale - left, exact,
                        3 * u * std::fabs(exact) + tiny)
                << "zero " << zero << " q " << q;
            ASSERT_LE(std::fabs(left), std::fabs(exact) * (1 + 4 * u) + tiny) << zero << ' ' << q;
          });
      if (this->HasFatalFailure()) return;
    }
  }
}

// Where nothing is said to be missed, the offsets alone are the zero point; offsets and rest are
// the same as fold()'s in any case.
TYPED_TEST(FoldingConverterTest, WholeZeroPointsAreToldFromOthers) {
  using Converter = typename TestFixture::Converter;
  using Format = typename TestFixture::Format;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double zero = decode<Format>(static_cast<uint16_t>(bits));
    if (!std::isfinite(zero)) continue;
    uint32_t minus_rest, missed = 0;
    const PairOffsets offsets =
        Converter::fold(bits * 0x10001u, Converter::kPairScaleX2, minus_rest);
    const PairOffsets whole = Converter::fold_whole(bits * 0x10001u, missed);
    ASSERT_EQ(whole.first, offsets.first) << zero;
    ASSERT_EQ(whole.second, offsets.second) << zero;
    const bool any = (missed & 0x7fff7fffu) != 0;
    ASSERT_EQ(any, (minus_rest & 0x7fff7fffu) != 0) << zero;
    // Below -8 offsets hold halves as well.
    const bool tiny = zero != 0 && std::fabs(zero) < 0x1p-120;
    if (TestFixture::kFolds && !tiny && zero >= -8 && zero <= 64) {
      ASSERT_EQ(any, zero != std::floor(zero)) << zero;
    }
  }
}

// One half has a zero point that is not whole.
TYPED_TEST(FoldingConverterTest, WhatIsMissedOfEitherHalfIsSeen) {
  using Converter = typename TestFixture::Converter;
  using Format = typename TestFixture::Format;
  if (!TestFixture::kFolds) return;  // all are subtracted
  const uint32_t whole = encode<Format>(-3), other = encode<Format>(2.3);
  const auto missed = [](uint32_t zeros, uint32_t before) {
    Converter::fold_whole(zeros, before);
    return (before & 0x7fff7fffu) != 0;
  };
  EXPECT_FALSE(missed(whole | whole << 16, 0));
  EXPECT_FALSE(missed(0x80008000u, 0));  // -0
  EXPECT_TRUE(missed(whole | other << 16, 0));
  EXPECT_TRUE(missed(other | whole << 16, 0));
  EXPECT_TRUE(missed(whole | whole << 16, 1));  // of a group before
}

// Two columns with scales and zero points of their own, in the two halves.
TYPED_TEST(FoldingConverterTest, ColumnsOfAPairAreRoundedOnce) {
  using Converter = typename TestFixture::Converter;
  using Format = typename TestFixture::Format;
  constexpr int kBias = TypeParam::Weight::kBias;
  const double scales[2] = {decode<Format>(encode<Format>(0.0123)), -0.75};
  for (const ZeroMode mode : {ZeroMode::kSub, ZeroMode::kAdd}) {
    for (int first = -kBias; first < kBias; ++first) {
      const double zeros[2] = {static_cast<double>(first), static_cast<double>(-1 - first)};
      const auto pair_of = [](const double(&values)[2]) {
        return encode<Format>(values[0]) | static_cast<uint32_t>(encode<Format>(values[1])) << 16;
      };
      typename TestFixture::Columns columns;
      columns.loaded[0] = pair_of(scales), columns.loaded[1] = pair_of(zeros);
      columns.fold(ZeroFolding::of<Converter>(mode));
      for (uint32_t value = 0; value < this->kValues; ++value) {
        for (int half = 0; half < 2; ++half) {
          this->for_each_member(
              this->word_of(value),
              [&](uint32_t word, int step, uint32_t(&pairs)[2]) {
                columns.convert_step(Converter(), word, step, half, pairs);
              },
              [&](int q, double part) {
                const double exact = mode == ZeroMode::kSub ? (q - zeros[half]) * scales[half]
                                                            : q * scales[half] + zeros[half];
                ASSERT_EQ(part * Converter::kResultScale, decode<Format>(encode<Format>(exact)))
                    << q << ' ' << zeros[half];
              });
          if (this->HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
