// also: nvcc
// The packed layout: a bijection, equal to the closed form of the format it shares with the
// ColumnMajorTileInterleave kernels, and sliceable by 64 columns; the packers are its inverses.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <tuple>
#include <vector>

#include "layout/pack_weight.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {
namespace {

constexpr WeightType kTypes[] = {WeightType::kInt4, WeightType::kInt8, WeightType::kE2M1,
                                 WeightType::kE4M3, WeightType::kNF4,  WeightType::kFP4};
static_assert(std::size(kTypes) == kNumWeights, "all of them");
constexpr int64_t kSizesN[] = {64, 128, 320};
constexpr int64_t kSizesK[] = {64, 128, 192, 448, 1024};

// Calls body(WeightLayout<Weight>{}, n, k_pad) for every weight type and padded size.
template <typename Body>
void for_each_layout(const Body& body) {
  for (const int64_t n : kSizesN) {
    for (const int64_t k_pad : kSizesK) {
      for (const WeightType type : kTypes) {
        with_weight(type, [&](auto weight) { body(WeightLayout<decltype(weight)>{}, n, k_pad); });
      }
    }
  }
}

// Calls body(layout, i, j, k_pad) for every element of them.
template <typename Body>
void for_each_element(const Body& body) {
  for_each_layout([&](auto layout, int64_t n, int64_t k_pad) {
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k_pad; ++j) body(layout, i, j, k_pad);
    }
  });
}

TEST(WeightLayout, PlaceFillsEverySlotExactlyOnce) {
  for_each_layout([](auto layout, int64_t n, int64_t k_pad) {
    using Layout = decltype(layout);
    std::vector<int> visits(n * k_pad);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k_pad; ++j) {
        const auto place = Layout::place(i, j, k_pad);
        ASSERT_TRUE(place.slot >= 0 && place.slot < Layout::kPerWord);
        ++visits.at(place.word * Layout::kPerWord + place.slot);
      }
    }
    EXPECT_EQ(visits, std::vector<int>(n * k_pad, 1));
    EXPECT_EQ(Layout::packed_bytes(n, k_pad), n * k_pad / Layout::kPerWord * 4);
  });
}

TEST(WeightLayout, ElementInvertsPlace) {
  for_each_element([](auto layout, int64_t i, int64_t j, int64_t k_pad) {
    const auto place = layout.place(i, j, k_pad);
    const auto element = layout.element(place.word, place.slot, k_pad);
    ASSERT_EQ(std::make_tuple(element.n, element.k), std::make_tuple(i, j));
  });
}

// The element address of ColumnMajorTileInterleave<64, I> after the ldmatrix row permutation and
// the register interleave, written the way other implementations build it: three steps, in
// elements.
int64_t closed_form_address(int bits, int64_t n, int64_t k, int64_t k_pad) {
  const int64_t block = 128 / bits, per_word = 32 / bits, interleave = 16 / bits;
  const int64_t q = k % block / 8, r = k % 8 / 2, s = k % 2;
  const int64_t permuted = block * (k / block) + per_word * r + 2 * q + s;
  const int64_t d = permuted % per_word;
  const int64_t int8_order[] = {0, 2, 1, 3};
  const int64_t in_word = bits == 8 ? int8_order[d] : (d % 2 == 0 ? d / 2 : 4 + d / 2);
  return n / interleave * interleave * k_pad + interleave * 64 * (permuted / 64) +
         64 * (n % interleave) + per_word * (permuted % 64 / per_word) + in_word;
}

TEST(WeightLayout, EqualsTheClosedForm) {
  for_each_element([](auto layout, int64_t i, int64_t j, int64_t k_pad) {
    using Layout = decltype(layout);
    const auto place = Layout::place(i, j, k_pad);
    ASSERT_EQ(place.word * Layout::kPerWord + place.slot,
              closed_form_address(32 / Layout::kPerWord, i, j, k_pad))
        << "n=" << i << " k=" << j << " k_pad=" << k_pad;
  });
}

TEST(WeightLayout, IsUsableInConstantExpressions) {
  static_assert(WeightLayout<Int4>::place(0, 9, 64).word == 0, "k = 9 is in lane 0's word");
  static_assert(WeightLayout<Int4>::place(0, 9, 64).slot == 5, "second member of pair 1");
  static_assert(WeightLayout<Int8>::element(1, 3, 64).k == 11, "lane 1, pair 1, second member");
  static_assert(WeightLayout<Int8>::packed_bytes(1, 1) == 64 * 64, "padded to 64 x 64");
}

// A parallel_for that cuts the range in uneven pieces and runs the last one first.
void scrambled_for(int64_t begin, int64_t end, int64_t /*grain*/, const LoopBody& body) {
  for (int64_t e = end; e > begin;) {
    const int64_t b = std::max(begin, e - 1 - (e * 7) % 5000);
    body(b, e);
    e = b;
  }
}

// Integers, or codes from 0 on.
std::vector<int8_t> random_weight(WeightType type, int64_t count) {
  const WeightInfo info = weight_info(type);
  std::mt19937 random(static_cast<unsigned>(info.bits + count));
  std::vector<int8_t> q(count);
  for (auto& value : q) {
    value = static_cast<int8_t>(static_cast<int>(random() >> (32 - info.bits)) - info.bias);
  }
  return q;
}

int64_t packed_bytes(WeightType type, int64_t n, int64_t k) {
  return with_weight(
      type, [&](auto weight) { return WeightLayout<decltype(weight)>::packed_bytes(n, k); });
}

std::vector<uint8_t> packed(WeightType type, const int8_t* q, int64_t stride, int64_t n, int64_t k,
                            const ParallelFor& parallel_for = serial_for) {
  std::vector<uint8_t> bytes(packed_bytes(type, n, k));
  pack_weight(type, q, stride, n, k, bytes.data(), parallel_for);
  return bytes;
}

class PackWeight : public testing::TestWithParam<std::tuple<WeightType, int64_t, int64_t>> {};

TEST_P(PackWeight, UnpackReturnsWhatWasPacked) {
  const auto [type, n, k] = GetParam();
  const int64_t stride = k + 3;
  const auto q = random_weight(type, n * stride);
  const auto bytes = packed(type, q.data(), stride, n, k);
  EXPECT_EQ(bytes, packed(type, q.data(), stride, n, k, scrambled_for));

  for (const ParallelFor& parallel_for : {ParallelFor(serial_for), ParallelFor(scrambled_for)}) {
    std::vector<int8_t> back(n * k, 99);
    unpack_weight(type, bytes.data(), n, k, back.data(), parallel_for);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < k; ++j) ASSERT_EQ(back[i * k + j], q[i * stride + j]);
    }
  }
}

TEST_P(PackWeight, PaddingHoldsZero) {
  const auto [type, n, k] = GetParam();
  const int64_t n_pad = round_up(n, kPadN), k_pad = round_up(k, kPadK);
  const auto q = random_weight(type, n * k);
  const auto bytes = packed(type, q.data(), k, n, k);
  std::vector<int8_t> whole(n_pad * k_pad);  // the padded sizes pack to the same bytes
  unpack_weight(type, bytes.data(), n_pad, k_pad, whole.data(), serial_for);
  const int zero = with_weight(
      type, [](auto weight) { return decltype(weight)::kZero - decltype(weight)::kBias; });
  for (int64_t i = 0; i < n_pad; ++i) {
    for (int64_t j = 0; j < k_pad; ++j) {
      ASSERT_EQ(whole[i * k_pad + j], i < n && j < k ? q[i * k + j] : zero);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, PackWeight,
                         testing::Combine(testing::ValuesIn(kTypes),
                                          testing::Values<int64_t>(1, 63, 64, 130),
                                          testing::Values<int64_t>(1, 17, 64, 96, 321)));

TEST(PackWeightSlice, SixtyFourColumnsStandAlone) {
  for (const WeightType type : kTypes) {
    const int64_t n = 256, k = 100;
    const auto q = random_weight(type, n * k);
    const auto whole = packed(type, q.data(), k, n, k);
    const int64_t slice_bytes = packed_bytes(type, 64, k);
    for (int64_t slice = 0; slice < n / 64; ++slice) {
      const auto alone = packed(type, q.data() + slice * 64 * k, k, 64, k);
      const auto first = whole.begin() + slice * slice_bytes;
      EXPECT_EQ(alone, std::vector<uint8_t>(first, first + slice_bytes));
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
