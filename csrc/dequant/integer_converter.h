// Converts biased int4 or int8 of a packed word to fp16 or bf16 pairs, exactly, without slow I2F.
//
// The stored value u goes into the mantissa of a float whose unit in the last place is 1 (fp16
// 1024 = 0x6400, bf16 128 = 0x4300), which makes 1024 + u or 128 + u; then the magic number and the
// bias are subtracted at once. Pair p of the result holds k = 8p + 2r and 8p + 2r + 1 of the block
// (layout/weight_layout.h).
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "core/weight_type.h"

namespace mixed_gemm {

// Pairs hold (q + kBias) * kPairScale, in the words of dequant/stored_converter.h.
struct PlainIntegers {
  static constexpr float kPairScale = 1.f;
  static constexpr int kRatio = 1, kBias = 0;
};

template <typename Format, typename Weight>
struct IntegerConverter;

template <>
struct IntegerConverter<Half, Int8> : PlainIntegers {
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int /*step*/,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kMagic = 0x64646464u;      // the high byte of fp16 1024 + u
    constexpr uint32_t kMagicBias = 0x64806480u;  // 1024 + 128
    pairs[0] = sub_x2<Half>(prmt<0x5250>(word, kMagic), kMagicBias);
    pairs[1] = sub_x2<Half>(prmt<0x5351>(word, kMagic), kMagicBias);
  }
};

template <>
struct IntegerConverter<Half, Int4> : PlainIntegers {
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kHigh = 0x00f000f0u, kMagic = 0x64006400u;
    constexpr uint32_t kMagicBias = 0x64086408u;  // 1024 + 8
    constexpr uint32_t kSixteenth =
        0x2c002c00u;  // a high nibble reads 1024 + 16 u: divide by 16, then
    constexpr uint32_t kMinus72 = 0xd480d480u;  // subtract 1024 / 16 + 8
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = sub_x2<Half>(lop3<kLutAndOr>(nibbles, kLow, kMagic), kMagicBias);
    pairs[1] = fma_x2<Half>(lop3<kLutAndOr>(nibbles, kHigh, kMagic), kSixteenth, kMinus72);
  }
};

// bf16 has 7 mantissa bits, so a byte does not fit: q = (128 + low 7 bits) - (128 if the top bit is
// set, else 256).
template <>
struct IntegerConverter<BFloat16, Int8> : PlainIntegers {
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int /*step*/,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow7 = 0x007f007fu, kTop = 0x00800080u, kMagic = 0x43004300u;
    MIXED_GEMM_UNROLL
    for (int p = 0; p < 2; ++p) {
      const uint32_t bytes = word >> (8 * p);
      pairs[p] = sub_x2<BFloat16>(lop3<kLutAndOr>(bytes, kLow7, kMagic),
                                  lop3<kLutNotAndOr>(bytes, kTop, kMagic));
    }
  }
};

template <>
struct IntegerConverter<BFloat16, Int4> : PlainIntegers {
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kMagic = 0x43004300u;
    constexpr uint32_t kMagicBias = 0x43084308u;  // 128 + 8
    MIXED_GEMM_UNROLL
    for (int p = 0; p < 2; ++p) {
      pairs[p] =
          sub_x2<BFloat16>(lop3<kLutAndOr>(word >> (8 * step + 4 * p), kLow, kMagic), kMagicBias);
    }
  }
};

// Words hold 32 / bits elements, an mma step takes 4 of them: int4 words serve two steps, each
// converted once.
template <typename Weight>
constexpr int kStepsPerWord = 8 / Weight::kBits;

// Converts all pairs of a word, in the order of k.
template <typename Format, typename Weight>
MIXED_GEMM_HOST_DEVICE void convert_word(uint32_t word,
                                         uint32_t (&pairs)[2 * kStepsPerWord<Weight>]) {
  MIXED_GEMM_UNROLL
  for (int step = 0; step < kStepsPerWord<Weight>; ++step) {
    uint32_t two[2];
    IntegerConverter<Format, Weight>::convert_step(word, step, two);
    pairs[2 * step] = two[0];
    pairs[2 * step + 1] = two[1];
  }
}

}  // namespace mixed_gemm
