// Scale and zero point on converted pairs, with the rounding stated: `mul` rounds once; the zero
// form subtracts (exact for integer zeros), then one fma rounds. w = (q - subtrahend) * scale +
// addend serves both zero modes: "sub" sets addend = 0, "add" sets subtrahend = 0.
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t apply_scale(uint32_t q_pair, uint32_t scale_pair) {
  return mul_x2<Format>(q_pair, scale_pair);
}

template <typename Format>
MIXED_GEMM_HOST_DEVICE uint32_t apply_scale_and_zero(uint32_t q_pair, uint32_t scale_pair,
                                                     uint32_t subtrahend_pair,
                                                     uint32_t addend_pair) {
  return fma_x2<Format>(sub_x2<Format>(q_pair, subtrahend_pair), scale_pair, addend_pair);
}

// The scale of a column in the low half of one register, its zero in the high half.
struct PackedScale {
  uint32_t bits;

  static MIXED_GEMM_HOST_DEVICE PackedScale pack(uint16_t scale, uint16_t zero) {
    return {prmt<0x5410>(scale, zero)};
  }

  template <typename Format, bool kHasZero>
  MIXED_GEMM_HOST_DEVICE void apply(ZeroMode zero_mode, uint32_t (&pairs)[2]) const {
    const uint32_t scale = prmt<0x1010>(bits, 0u);
    const uint32_t zero = kHasZero ? prmt<0x3232>(bits, 0u) : 0u;
    const bool sub = zero_mode == ZeroMode::kSub;
    MIXED_GEMM_UNROLL
    for (int p = 0; p < 2; ++p) {
      pairs[p] =
          kHasZero ? apply_scale_and_zero<Format>(pairs[p], scale, sub ? zero : 0u, sub ? 0u : zero)
                   : apply_scale<Format>(pairs[p], scale);
    }
  }
};

}  // namespace mixed_gemm
