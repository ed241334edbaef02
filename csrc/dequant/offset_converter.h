// Packed int4 and int8 -> 16-bit pairs of (q - z) * kUnit, with the zero point z of a column inside
// the constants that take the magic number away again: z costs nothing a weight. For kernels that
// scale sums, which kUnit does not disturb.
//
// A zero point fits if its constants hold it exactly, as they do for all whole numbers of the size
// of weights; then the result is what subtracting z from the converted weight gives, to the bit.
// One that does not (fractions, mostly) is left to the caller.
//
// bf16 and int4: the high nibble of a byte alone, u << 4, is u * 2^-129 as bf16: either subnormal
// or of the first binade above, which continue each other. So as in fp16 one shift serves two
// pairs, at the price of results in quarters, since 2^129 is no bf16.
#pragma once
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// For the pairs 0 and 1 of a step, in both halves.
struct PairOffsets {
  uint32_t first, second;

  // first: low half of `packed`
  static MIXED_GEMM_HOST_DEVICE PairOffsets unpack(uint32_t packed) {
    return {both_halves(packed, 0), both_halves(packed, 1)};
  }
  static constexpr PairOffsets constant(uint32_t packed) {
    return {(packed & 0xffffu) * 0x10001u, (packed >> 16) * 0x10001u};
  }
};

// kPacked: the offsets without zero point. For z: t = (z * kIn + kMagic) * kOut + kBack is z
// rounded to what fits, where |z| is at most kMost (as bits); the offsets are t * kFactors +
// kPacked.
template <typename Format, int kBits>
struct OffsetConverter;

template <>
struct OffsetConverter<Half, 4> : PlainIntegers {
  static constexpr uint32_t kUnitX2 = 0x3c003c00u;
  static constexpr uint32_t kMost = 0x6400u;        // 1024
  static constexpr uint32_t kPacked = 0xd4806408u;  // 1024 + 8, -(64 + 8)
  static constexpr uint32_t kIn = 0x3c003c00u, kMagic = 0x64086408u;
  static constexpr uint32_t kOut = kIn, kBack = 0xe408e408u;
  static constexpr uint32_t kFactors = 0xbc003c00u;  // 1, -1
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kExponent = 0x64006400u, kSixteenth = 0x2c002c00u;
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = sub_x2<Half>(lop3<kLutAndOr>(nibbles, 0x000f000fu, kExponent), offsets.first);
    pairs[1] =
        fma_x2<Half>(lop3<kLutAndOr>(nibbles, 0x00f000f0u, kExponent), kSixteenth, offsets.second);
  }
};

template <>
struct OffsetConverter<Half, 8> : PlainIntegers {
  static constexpr uint32_t kUnitX2 = 0x3c003c00u;
  static constexpr uint32_t kMost = 0x6400u;        // 1024
  static constexpr uint32_t kPacked = 0x64806480u;  // 1024 + 128
  static constexpr uint32_t kIn = 0x3c003c00u, kMagic = kPacked;
  static constexpr uint32_t kOut = kIn, kBack = 0xe480e480u;
  static constexpr uint32_t kFactors = kIn;
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int /*step*/, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kExponent = 0x64646464u;
    pairs[0] = sub_x2<Half>(prmt<0x5250>(word, kExponent), offsets.first);
    pairs[1] = sub_x2<Half>(prmt<0x5351>(word, kExponent), offsets.first);
  }
};

template <>
struct OffsetConverter<BFloat16, 4> {
  static constexpr float kUnit = 0.25f;
  static constexpr int kRatio = 1, kBias = 0;
  static constexpr uint32_t kUnitX2 = 0x3e803e80u;
  static constexpr uint32_t kMost = 0x4300u;                          // 128
  static constexpr uint32_t kPacked = 0xc0004208u;                    // (128 + 8) / 4, -8 / 4
  static constexpr uint32_t kIn = 0x3e803e80u, kMagic = 0x42084208u;  // 1/4, 34
  static constexpr uint32_t kOut = 0x40804080u, kBack = 0xc308c308u;  // 4, -136
  static constexpr uint32_t kFactors = 0xbe803e80u;                   // 1/4, -1/4
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kExponent = 0x42004200u;  // 32, with quarters as units in the last place
    constexpr uint32_t kTwoTo127 = 0x7f007f00u;
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = sub_x2<BFloat16>(lop3<kLutAndOr>(nibbles, 0x000f000fu, kExponent), offsets.first);
    pairs[1] = fma_x2<BFloat16>(nibbles & 0x00f000f0u, kTwoTo127, offsets.second);
  }
};

// The same without zero points: of bf16 and int4 for its shifts.
template <typename Format, int kBits>
struct ConstantOffsetConverter : OffsetConverter<Format, kBits> {
  using Base = OffsetConverter<Format, kBits>;
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    Base::convert_step(word, step, PairOffsets::constant(Base::kPacked), pairs);
  }
};

// Not for int8 as bf16: a byte does not even fit into the mantissa by itself.
template <typename Format, int kBits>
constexpr bool kHasOffsets = kBits == 4 || Format::kMantissaBits == Half::kMantissaBits;

struct FoldedZero {
  uint32_t packed;  // PairOffsets
  bool fits;
};

// zero: bits of a 16-bit float.
template <typename Format, int kBits>
MIXED_GEMM_HOST_DEVICE FoldedZero fold_zero(uint32_t zero) {
  using Converter = OffsetConverter<Format, kBits>;
  const uint32_t both = prmt<0x1010>(zero, 0u);
  const uint32_t magic = fma_x2<Format>(both, Converter::kIn, Converter::kMagic);
  const uint32_t rounded = fma_x2<Format>(magic, Converter::kOut, Converter::kBack);
  const uint32_t rest = sub_x2<Format>(rounded, both);
  return {fma_x2<Format>(rounded, Converter::kFactors, Converter::kPacked),
          (rest & 0x7fffu) == 0 && (zero & 0x7fffu) <= Converter::kMost};
}

}  // namespace mixed_gemm
