// also: nvcc
// The host twins of prmt.b32 and lop3.b32 against the tables of the PTX ISA, written independently.
#include <gtest/gtest.h>

#include <random>

#include "core/bit_ops.h"

namespace mixed_gemm {
namespace {

constexpr uint32_t kWordPairs[][2] = {{0x03020100u, 0x07060504u},
                                      {0x80ff7f00u, 0x01fe8081u},
                                      {0xdeadbeefu, 0x64646464u},
                                      {0x00000000u, 0xffffffffu}};

// prmt in its default mode, by the PTX ISA: bytes b7..b0 of {b, a}; the top bit of a selector
// replicates the sign.
uint32_t prmt_of_the_manual(uint32_t a, uint32_t b, uint32_t selector) {
  uint8_t bytes[8];
  for (int i = 0; i < 4; ++i) {
    bytes[i] = static_cast<uint8_t>(a >> (8 * i));
    bytes[4 + i] = static_cast<uint8_t>(b >> (8 * i));
  }
  uint32_t result = 0;
  for (int i = 3; i >= 0; --i) {
    const int control = static_cast<int>(selector / (1u << (4 * i)) % 16);
    int byte = bytes[control % 8];
    if (control >= 8) byte = byte >= 128 ? 255 : 0;
    result = result * 256 + static_cast<uint32_t>(byte);
  }
  return result;
}

TEST(Prmt, TwinMatchesTheManualForEverySelector) {
  for (const auto& words : kWordPairs) {
    for (uint32_t selector = 0; selector < 0x10000; ++selector) {
      ASSERT_EQ(prmt_twin(words[0], words[1], selector),
                prmt_of_the_manual(words[0], words[1], selector))
          << std::hex << words[0] << " " << words[1] << " selector " << selector;
    }
  }
}

TEST(Prmt, IgnoresSelectorBitsAboveSixteen) {
  EXPECT_EQ(prmt_twin(0x03020100u, 0x07060504u, 0xabcd5250u),
            prmt_twin(0x03020100u, 0x07060504u, 0x5250u));
}

TEST(Prmt, TemplateIsTheTwin) {
  for (const auto& words : kWordPairs) {
    EXPECT_EQ(prmt<0x5250>(words[0], words[1]), prmt_of_the_manual(words[0], words[1], 0x5250));
    EXPECT_EQ(prmt<0x9f47>(words[0], words[1]), prmt_of_the_manual(words[0], words[1], 0x9f47));
  }
}

// lop3 by the PTX ISA: bit i of the result is bit (a_i << 2 | b_i << 1 | c_i) of the table.
uint32_t lop3_of_the_manual(uint32_t a, uint32_t b, uint32_t c, uint32_t lut) {
  uint32_t result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t row = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1);
    result |= (lut >> row & 1) << bit;
  }
  return result;
}

TEST(Lop3, TwinMatchesTheManualForEveryTable) {
  std::mt19937 random(7);
  for (uint32_t lut = 0; lut < 256; ++lut) {
    // These three words hold all eight input rows; random ones catch a dependence between bits.
    ASSERT_EQ(lop3_twin(0xf0, 0xcc, 0xaa, lut) & 0xff, lut);
    for (int i = 0; i < 64; ++i) {
      const uint32_t a = random(), b = random(), c = random();
      ASSERT_EQ(lop3_twin(a, b, c, lut), lop3_of_the_manual(a, b, c, lut)) << "lut " << lut;
    }
  }
}

TEST(Lop3, NamedTablesAreTheirExpressions) {
  std::mt19937 random(8);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t a = random(), b = random(), c = random();
    ASSERT_EQ(lop3<kLutAndOr>(a, b, c), (a & b) | c);
    ASSERT_EQ(lop3<kLutNotAndOr>(a, b, c), (~a & b) | c);
  }
}

}  // namespace
}  // namespace mixed_gemm
