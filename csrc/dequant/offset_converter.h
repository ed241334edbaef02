// Converts packed int4 and int8 to 16-bit pairs of (q - z) * kPairScale, with the zero point z of a
// column inside the constants that subtract the magic number: z costs nothing a weight. It is for
// kernels that scale sums, which kPairScale does not disturb.
//
// Offsets hold all whole numbers of the size of weights exactly. Then the result is, to the bit,
// the converted weight less z (dequant/folding_converter.h).
//
// bf16 and int4: the high nibble of a byte alone, u << 4, is u * 2^-129 as bf16: either subnormal
// or of the first binade above, which continue each other. So as in fp16 one shift serves two
// pairs, at the price of results in quarters, since 2^129 is no bf16.
#pragma once
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// The offsets of pairs 0 and 1 of a step, in both halves.
struct PairOffsets {
  uint32_t first, second;

  // first: low half of `packed`
  static constexpr MIXED_GEMM_HOST_DEVICE PairOffsets constant(uint32_t packed) {
    return {(packed & 0xffffu) * 0x10001u, (packed >> 16) * 0x10001u};
  }
};

// kPacked: the offsets without zero point. A zero point of at most kMost (as bits) is rounded to
// what offsets hold by adding kMagic and taking it away again. kSum: the sum of the two offsets,
// whatever the zero point.
template <typename Format, typename Weight>
struct OffsetConverter;

template <>
struct OffsetConverter<Half, Int4> : PlainIntegers {
  static constexpr uint32_t kPairScaleX2 = 0x3c003c00u;
  static constexpr uint32_t kMost = 0x6400u;        // 1024
  static constexpr uint32_t kPacked = 0xd4806408u;  // 1024 + 8, -(64 + 8)
  static constexpr uint32_t kSum = 0x63806380u;
  static constexpr uint32_t kMagic = 0x64086408u;
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
struct OffsetConverter<Half, Int8> : PlainIntegers {
  static constexpr uint32_t kPairScaleX2 = 0x3c003c00u;
  static constexpr uint32_t kMost = 0x6400u;        // 1024
  static constexpr uint32_t kPacked = 0x64806480u;  // 1024 + 128
  static constexpr uint32_t kSum = 0;               // there is one
  static constexpr uint32_t kMagic = kPacked;
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int /*step*/, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kExponent = 0x64646464u;
    pairs[0] = sub_x2<Half>(prmt<0x5250>(word, kExponent), offsets.first);
    pairs[1] = sub_x2<Half>(prmt<0x5351>(word, kExponent), offsets.first);
  }
};

template <>
struct OffsetConverter<BFloat16, Int4> {
  static constexpr float kPairScale = 0.25f;
  static constexpr int kRatio = 1, kBias = 0;
  static constexpr uint32_t kPairScaleX2 = 0x3e803e80u;
  static constexpr uint32_t kMost = 0x4300u;        // 128
  static constexpr uint32_t kPacked = 0xc0004208u;  // (128 + 8) / 4, -8 / 4
  static constexpr uint32_t kSum = 0x42004200u;
  static constexpr uint32_t kMagic = 0x42084208u;  // 34
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    constexpr uint32_t kExponent = 0x42004200u;  // 32, with quarters as units in the last place
    constexpr uint32_t kTwoTo127 = 0x7f007f00u;
    const uint32_t nibbles = word >> (8 * step);
    pairs[0] = sub_x2<BFloat16>(lop3<kLutAndOr>(nibbles, 0x000f000fu, kExponent), offsets.first);
    pairs[1] = fma_x2<BFloat16>(nibbles & 0x00f000f0u, kTwoTo127, offsets.second);
  }
};

// The same without zero points: bf16 takes it for int4, to save shifts.
template <typename Format, typename Weight>
struct ConstantOffsetConverter : OffsetConverter<Format, Weight> {
  using Base = OffsetConverter<Format, Weight>;
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    Base::convert_step(word, step, PairOffsets::constant(Base::kPacked), pairs);
  }
};

// int8 as bf16 has none: a byte does not even fit into the mantissa by itself.
template <typename Format, typename Weight>
constexpr bool kHasOffsets = false;
template <typename Format>
constexpr bool kHasOffsets<Format, Int4> = true;
template <>
constexpr bool kHasOffsets<Half, Int8> = true;

}  // namespace mixed_gemm
