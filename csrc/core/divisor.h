// Division by a number that the host knows when it launches a kernel. In a kernel it is a product
// and a shift; a division of integers is thirty instructions. (cutlass::FastDivmod, which kernels
// use for what they count themselves, would make the host's tests of WorkSplit need CUTLASS.)
#pragma once
#include <cstdint>

#include "core/macros.h"

namespace mixed_gemm {

struct Divisor {
  int divisor;
  uint32_t multiplier;  // 2^shift / divisor, rounded up: below 2^32
  int shift;            // 31 + log2(divisor), rounded up

  // divisor: positive.
  static constexpr Divisor of(int divisor) {
    int shift = 31;
    while ((uint64_t{1} << (shift - 31)) < static_cast<uint64_t>(divisor)) ++shift;
    const uint64_t power = uint64_t{1} << shift, d = static_cast<uint64_t>(divisor);
    return {divisor, static_cast<uint32_t>((power + d - 1) / d), shift};
  }

  // n / divisor, rounded down, of n >= 0. The multiplier is less than 1 too large, so what is
  // shifted out is less than n / 2^shift < 2^31 / 2^shift <= 1 / divisor too large: never the next
  // integer.
  MIXED_GEMM_HOST_DEVICE int quotient(int n) const {
    return static_cast<int>(static_cast<uint64_t>(static_cast<uint32_t>(n)) * multiplier >> shift);
  }
  MIXED_GEMM_HOST_DEVICE int remainder(int n) const { return n - quotient(n) * divisor; }
};

}  // namespace mixed_gemm
