// Converts packed int4 to 16-bit pairs of the stored values, (q + kBias) * kPairScale: no
// instruction subtracts the bias of the layout or a magic number. It is for kernels that scale
// sums: the bias is the same for all weights of a column and group, so it leaves once a group, with
// the sum of the tokens: sum(a q) = sum(a pair) / kPairScale - kBias * sum(a).
//
// fp16: a nibble alone is a subnormal number, which tensor cores multiply like any other; products
// and sums in fp32 are as exact as ever. bf16 has no such range (u * 2^-133): a nibble stays on top
// of 128.
#pragma once
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// kOneScale: one for all pairs. Else pair 0 of a step is scaled by kPairScale / kRatio, which saves
// two shifts a word as fp16.
template <typename Format, typename Weight, bool kOneScale>
struct StoredConverter;

template <bool kOneScale>
struct StoredConverter<Half, Int4, kOneScale> {
  static constexpr float kPairScale = 1.f / (1 << 20);  // of bits 4 to 7
  static constexpr int kRatio = kOneScale ? 1 : 16, kBias = 8;
  static constexpr uint32_t kMinusBiasX2 = 0x80808080u;  // times kPairScale
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kHigh = 0x00f000f0u;
    const uint32_t nibbles = word >> (8 * step);
    if constexpr (kOneScale) {
      pairs[0] = lop3<kLutAndOr>(step == 0 ? word << 4 : word >> (8 * step - 4), kHigh, 0u);
    } else {
      pairs[0] = lop3<kLutAndOr>(nibbles, kLow, 0u);
    }
    pairs[1] = lop3<kLutAndOr>(nibbles, kHigh, 0u);
  }
};

template <bool kOneScale>
struct StoredConverter<BFloat16, Int4, kOneScale> {
  static constexpr float kPairScale = 1.f;
  static constexpr int kRatio = 1, kBias = 128 + 8;
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    constexpr uint32_t kLow = 0x000f000fu, kMagic = 0x43004300u;
    MIXED_GEMM_UNROLL
    for (int p = 0; p < 2; ++p) {
      pairs[p] = lop3<kLutAndOr>(word >> (8 * step + 4 * p), kLow, kMagic);
    }
  }
};

// A byte takes as many instructions to lie alone as to become an integer.
template <typename Weight>
constexpr bool kHasStored = false;
template <>
constexpr bool kHasStored<Int4> = true;

}  // namespace mixed_gemm
