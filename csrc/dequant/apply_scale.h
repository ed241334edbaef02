// Scale and zero point on converted pairs, with the rounding stated: `mul` rounds once; the zero
// form subtracts (exact for integer zeros), then one fma rounds. w = (q - subtrahend) * scale +
// addend serves both zero modes: "sub" sets addend = 0, "add" sets subtrahend = 0.
#pragma once
#include <cstdint>

#include "core/half_arithmetic.h"

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

}  // namespace mixed_gemm
