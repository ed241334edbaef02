// Packed floats of 4 or 8 bits -> fp16 or bf16 pairs: a shift and a mask put the bits of a code
// under the exponent, where a narrow float reads as itself times a power of two, its subnormals
// included. kMultiplierX2 takes that power back. It is multiplied into the scale of a group, so it
// costs a weight nothing; that is why scales of such weights always meet weights, never sums, and
// stay below 4 (2^14 * 4 is no fp16, 2^126 * 4 no bf16).
//
// layout/code_places.h chose the places of the bits for it: a word of E2M1 takes 5 shifts and 7
// LOP3 in each format, as nibbles it takes 8 and 8.
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "layout/code_places.h"

namespace mixed_gemm {

// Pairs hold value / multiplier.
template <typename Format, typename Weight>
struct FloatConverter {
  static constexpr float kPairScale = 1.f;  // once scales have met the weights
  static constexpr int kRatio = 1, kBias = 0;
  // 2^(bias of the format - bias of the weight), as bits of both halves.
  static constexpr int kFormatBias = (1 << (Format::kExponentBits - 1)) - 1;
  static constexpr uint32_t kMultiplierX2 =
      static_cast<uint32_t>((2 * kFormatBias - Weight::kExponentBias) << Format::kMantissaBits) *
      0x10001u;

  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    MIXED_GEMM_UNROLL
    for (int p = 0; p < 2; ++p) pairs[p] = pair(word, 2 * step + p);
  }

 private:
  using At = Places<Weight>;

  static MIXED_GEMM_HOST_DEVICE uint32_t shifted(uint32_t word, int left) {
    return left >= 0 ? word << left : word >> -left;
  }
  static MIXED_GEMM_HOST_DEVICE uint32_t pair(uint32_t word, int slot) {
    constexpr int kMagnitudeAt = Format::kMantissaBits - Weight::kMantissaBits;
    constexpr uint32_t kMagnitudes = (At::kMagnitudeMask << kMagnitudeAt) * 0x10001u;
    constexpr uint32_t kSigns = 0x80008000u;
    const int magnitude = kMagnitudeAt - At::magnitude_at(slot), sign = 15 - At::sign_at(slot);
    if (magnitude == sign) return shifted(word, sign) & (kMagnitudes | kSigns);
    const uint32_t magnitudes = lop3<kLutAndOr>(shifted(word, magnitude), kMagnitudes, 0u);
    return lop3<kLutAndOr>(shifted(word, sign), kSigns, magnitudes);
  }
};

}  // namespace mixed_gemm
