// also: nvcc
// Repacking of AWQ and GPTQ words, against weights packed here by the words of the two formats, at
// ragged sizes, and the gather that the GPU runs against the transposing loop that the CPU runs.
#include <gtest/gtest.h>

#include <random>
#include <tuple>
#include <vector>

#include "layout/pack_weight.h"
#include "layout/repack.h"

namespace mixed_gemm {
namespace {

std::vector<uint8_t> random_codes(int bits, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(bits + 8 * count));
  std::vector<uint8_t> codes(count);
  for (auto& code : codes) code = static_cast<uint8_t>(random() & ((1u << bits) - 1));
  return codes;
}

// Packs codes [k, n]; the order of the columns in a word is AutoAWQ's, written out.
std::vector<uint32_t> awq_words(const std::vector<uint8_t>& codes, int64_t n, int64_t k) {
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> words(k * n / 8);
  for (int64_t i = 0; i < k * n / 8; ++i) {
    for (int nibble = 0; nibble < 8; ++nibble) {
      words[i] |= static_cast<uint32_t>(codes[8 * i + order[nibble]]) << (4 * nibble);
    }
  }
  return words;
}

// Packs codes [k, n], a bit at a time.
std::vector<uint32_t> gptq_words(const std::vector<uint8_t>& codes, int bits, int64_t n,
                                 int64_t k) {
  std::vector<uint32_t> words(k * bits / 32 * n);
  for (int64_t i = 0; i < k * bits; ++i) {
    for (int64_t column = 0; column < n; ++column) {
      const uint32_t bit = codes[i / bits * n + column] >> (i % bits) & 1u;
      words[i / 32 * n + column] |= bit << (i % 32);
    }
  }
  return words;
}

// The weight that repacking codes[row_of(j)] must give.
template <typename RowOf>
std::vector<uint8_t> expected(const std::vector<uint8_t>& codes, int bits, int64_t n, int64_t k,
                              RowOf row_of) {
  const int packed_bits = bits == 8 ? 8 : 4;
  std::vector<int8_t> q(n * k);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      q[i * k + j] = static_cast<int8_t>(codes[row_of(j) * n + i] - (1 << (bits - 1)));
    }
  }
  std::vector<uint8_t> packed(round_up(n, kPadN) * round_up(k, kPadK) * packed_bits / 8);
  pack_weight(*integer_weight(packed_bits), q.data(), k, n, k, packed.data(), serial_for);
  return packed;
}

int64_t same_row(int64_t j) { return j; }

TEST(AwqLayout, NibblesAndColumnsAreInverse) {
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (int nibble = 0; nibble < 8; ++nibble) {
    EXPECT_EQ(AwqLayout::column_of(nibble), order[nibble]);
    EXPECT_EQ(AwqLayout::nibble_of(order[nibble]), nibble);
    EXPECT_EQ(AwqLayout::code(0x76543210u, order[nibble]), nibble);
  }
}

class RepackAwq : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(RepackAwq, EqualsPackingTheUnpackedCodes) {
  const auto [n, k] = GetParam();
  const auto codes = random_codes(4, n * k);
  const auto words = awq_words(codes, n, k);
  const auto wanted = expected(codes, 4, n, k, same_row);
  std::vector<uint8_t> packed(wanted.size(), 0x11);
  repack_awq({words.data(), n, k}, packed.data(), serial_for);
  EXPECT_EQ(packed, wanted);
}

TEST_P(RepackAwq, GatherByWordsEqualsTheTransposition) {
  const auto [n, k] = GetParam();
  const auto words = awq_words(random_codes(4, n * k), n, k);
  std::vector<uint8_t> packed(WeightLayout<Int4>::packed_bytes(n, k));
  const AwqWeight weight{words.data(), n, k};
  repack_awq(weight, packed.data(), serial_for);
  const auto* result = reinterpret_cast<const uint32_t*>(packed.data());
  for (size_t i = 0; i < packed.size() / 4; ++i) {
    ASSERT_EQ(repacked_word(weight, i, round_up(k, kPadK)), result[i]) << "word " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RepackAwq,
                         testing::Combine(testing::Values<int64_t>(8, 56, 64, 72, 128, 136, 264),
                                          testing::Values<int64_t>(1, 16, 63, 64, 80, 160)));

TEST(RepackAwqColumns, ASliceStandsAlone) {
  const int64_t n = 200, k = 96;
  const auto codes = random_codes(4, n * k);
  const auto words = awq_words(codes, n, k);
  const auto whole = expected(codes, 4, n, k, same_row);
  std::vector<uint8_t> slice(WeightLayout<Int4>::packed_bytes(72, k));
  repack_awq_columns({words.data(), n, k}, 128, 200, slice.data());
  const auto first = whole.begin() + 128 * round_up(k, kPadK) / 2;
  EXPECT_EQ(slice, std::vector<uint8_t>(first, first + slice.size()));
}

class RepackGptq : public testing::TestWithParam<std::tuple<int, int64_t, int64_t>> {};

TEST_P(RepackGptq, EqualsPackingTheUnpackedCodes) {
  const auto [bits, n, k] = GetParam();
  const auto codes = random_codes(bits, n * k);
  const auto words = gptq_words(codes, bits, n, k);
  const auto wanted = expected(codes, bits, n, k, same_row);
  std::vector<uint8_t> packed(wanted.size(), 0x11);
  repack_gptq(words.data(), nullptr, bits, n, k, packed.data(), serial_for);
  EXPECT_EQ(packed, wanted);
}

TEST_P(RepackGptq, OrdersRowsByPerm) {
  const auto [bits, n, k] = GetParam();
  const auto codes = random_codes(bits, n * k);
  const auto words = gptq_words(codes, bits, n, k);
  std::vector<int32_t> perm(k);
  for (int64_t j = 0; j < k; ++j) perm[j] = static_cast<int32_t>((j * 5 + 3) % k);  // 5 is coprime
  const auto wanted = expected(codes, bits, n, k, [&](int64_t j) { return perm[j]; });
  std::vector<uint8_t> packed(wanted.size(), 0x11);
  repack_gptq(words.data(), perm.data(), bits, n, k, packed.data(), serial_for);
  EXPECT_EQ(packed, wanted);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RepackGptq,
                         testing::Combine(testing::Values(2, 3, 4, 8),
                                          testing::Values<int64_t>(1, 63, 65, 130),
                                          testing::Values<int64_t>(32, 64, 96, 224)));

TEST(RepackGptq, ARowOutsideTheWeightGivesZero) {
  const std::vector<uint32_t> words(4, 0xffffffffu);  // k = 32, n = 1, every q = 7
  std::vector<int32_t> perm(32, 0);
  perm[3] = 32;
  perm[5] = -1;
  std::vector<uint8_t> packed(WeightLayout<Int4>::packed_bytes(1, 32));
  repack_gptq(words.data(), perm.data(), 4, 1, 32, packed.data(), serial_for);
  std::vector<int8_t> q(32);
  unpack_weight(WeightType::kInt4, packed.data(), 1, 32, q.data(), serial_for);
  for (int j = 0; j < 32; ++j) EXPECT_EQ(q[j], j == 3 || j == 5 ? 0 : 7);
}

}  // namespace
}  // namespace mixed_gemm
