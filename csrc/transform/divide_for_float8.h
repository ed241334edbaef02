// Quotients that are about to be rounded to float8, at the price of products. The host computes
// the same, for tests.
#pragma once
#include <cstdint>
#include <cstring>

#include "core/macros.h"

namespace mixed_gemm {

// a / scale as the cast to float8 e4m3 sees it. The product with the inverse is within three units
// of the last place of the quotient rounded to fp32. The cast tells the two apart only beside a
// number in the middle of two codes, whose last 19 bits are 0, as in the codes; there it is
// divided.
class DivideForFloat8 {
 public:
  MIXED_GEMM_HOST_DEVICE explicit DivideForFloat8(float scale)
      : scale_(scale), inverse_(1.f / scale) {}

  template <int kCount>
  MIXED_GEMM_HOST_DEVICE void operator()(const float (&a)[kCount],
                                         float (&quotients)[kCount]) const {
    bool near = false;
    for (int i = 0; i < kCount; ++i) {
      quotients[i] = a[i] * inverse_;
      near = near || is_near(quotients[i]);
    }
    if (!near) return;
    for (int i = 0; i < kCount; ++i) quotients[i] = a[i] / scale_;
  }

 private:
  // Zeros are never near such a number.
  static MIXED_GEMM_HOST_DEVICE bool is_near(float quotient) {
    constexpr uint32_t kWithin = 4, kLastBits = (1u << 19) - 1;
    uint32_t bits;
    std::memcpy(&bits, &quotient, sizeof(bits));
    return ((bits + kWithin) & kLastBits) < 2 * kWithin && quotient != 0;
  }

  float scale_, inverse_;
};

}  // namespace mixed_gemm
