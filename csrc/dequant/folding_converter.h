// Stored integers u -> (u - bias - t) / kUnit, exactly, where the zero point t costs no instruction
// a weight: it is in the number that takes the magic one away (dequant/integer_converter.h).
//
// t is the zero point rounded to what that number can hold: itself for the integral zero points of
// checkpoints. The rest goes into the addend of the fma that scales (dequant/column_pair.h).
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// What low and high nibbles are taken from, or added to; bytes have `low` alone.
struct Origin {
  uint32_t low, high;
};

// convert_step() without an origin: for t = 0. fold(): the origin of zero points in units of kUnit,
// and what of them it leaves.
template <typename Format, int kBits>
struct FoldingConverter;

// Those of kUnit 1.
template <typename Format, int kBits>
struct WholeConverter : IntegerConverter<Format, kBits> {
  static constexpr int kUnit = 1;
  static MIXED_GEMM_HOST_DEVICE uint32_t parts(uint32_t zeros) { return zeros; }
};

template <>
struct FoldingConverter<Half, 4> : WholeConverter<Half, 4> {
  using WholeConverter<Half, 4>::convert_step;
  static constexpr uint32_t kZeroLow = 0x64086408u,
                            kZeroHigh = 0xd480d480u;  // 1024 + 8; -(1024 / 16 + 8)

  static MIXED_GEMM_HOST_DEVICE Origin fold(uint32_t zeros, uint32_t& rest) {
    constexpr uint32_t k1024 = 0x64006400u, kMinus1032 = 0xe408e408u;
    const uint32_t low = sub_x2<Half>(min_x2<Half>(zeros, k1024), kMinus1032);
    const uint32_t t = sub_x2<Half>(low, kZeroLow);
    rest = sub_x2<Half>(zeros, t);
    return {low, sub_x2<Half>(kZeroHigh, t)};
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, const Origin& origin,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kHigh = 0x00f000f0u, kMagic = 0x64006400u;
    constexpr uint32_t kSixteenth = 0x2c002c00u;
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = sub_x2<Half>(lop3<kLutAndOr>(nibbles, kLow, kMagic), origin.low);
    pairs[1] = fma_x2<Half>(lop3<kLutAndOr>(nibbles, kHigh, kMagic), kSixteenth, origin.high);
  }
};

template <>
struct FoldingConverter<Half, 8> : WholeConverter<Half, 8> {
  using WholeConverter<Half, 8>::convert_step;
  static constexpr uint32_t kZeroLow = 0x64806480u;  // 1024 + 128

  static MIXED_GEMM_HOST_DEVICE Origin fold(uint32_t zeros, uint32_t& rest) {
    constexpr uint32_t k1024 = 0x64006400u, kMinus1152 = 0xe480e480u;
    const uint32_t low = sub_x2<Half>(min_x2<Half>(zeros, k1024), kMinus1152);
    rest = sub_x2<Half>(zeros, sub_x2<Half>(low, kZeroLow));
    return {low, 0u};
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int /*step*/, const Origin& origin,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kMagic = 0x64646464u;
    pairs[0] = sub_x2<Half>(prmt<0x5250>(word, kMagic), origin.low);
    pairs[1] = sub_x2<Half>(prmt<0x5351>(word, kMagic), origin.low);
  }
};

// Quarters, with one shift for all nibbles of a step: the high one of a byte, alone in its half, is
// u * 2^-129, subnormal or not, and 2^127 is the largest power of two.
template <>
struct FoldingConverter<BFloat16, 4> {
  static constexpr int kUnit = 4;
  static constexpr uint32_t kZeroLow = 0xc208c208u,
                            kZeroHigh = 0xc000c000u;  // -(128 + 8) / 4; -8 / 4
  static constexpr uint32_t kPart = 0x3e803e80u;

  static MIXED_GEMM_HOST_DEVICE uint32_t parts(uint32_t zeros) {
    return mul_x2<BFloat16>(zeros, kPart);
  }
  static MIXED_GEMM_HOST_DEVICE Origin fold(uint32_t zeros, uint32_t& rest) {
    constexpr uint32_t k34 = 0x42084208u;
    const uint32_t t = sub_x2<BFloat16>(sub_x2<BFloat16>(zeros, kZeroLow), k34);
    rest = sub_x2<BFloat16>(zeros, t);
    return {sub_x2<BFloat16>(kZeroLow, t), sub_x2<BFloat16>(kZeroHigh, t)};
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    convert_step(word, step, {kZeroLow, kZeroHigh}, pairs);
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, const Origin& origin,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kHigh = 0x00f000f0u, kMagic = 0x43004300u;
    constexpr uint32_t k2To127 = 0x7f007f00u;
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = fma_x2<BFloat16>(lop3<kLutAndOr>(nibbles, kLow, kMagic), kPart, origin.low);
    pairs[1] = fma_x2<BFloat16>(nibbles & kHigh, k2To127, origin.high);
  }
};

// bf16 takes two magic numbers for a byte, so the zero point remains a subtraction.
template <>
struct FoldingConverter<BFloat16, 8> : WholeConverter<BFloat16, 8> {
  using WholeConverter<BFloat16, 8>::convert_step;

  static MIXED_GEMM_HOST_DEVICE Origin fold(uint32_t zeros, uint32_t& rest) {
    rest = 0u;
    return {zeros, 0u};
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, const Origin& origin,
                                                  uint32_t (&pairs)[2]) {
    convert_step(word, step, pairs);
    for (uint32_t& pair : pairs) pair = sub_x2<BFloat16>(pair, origin.low);
  }
};

}  // namespace mixed_gemm
