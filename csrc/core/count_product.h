// Products of counts that may not fit 64 bits: tiles of a very large output times parts of a very
// long K.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace mixed_gemm {

// The product of factors >= 0; the largest int64 stands for a larger one.
inline int64_t count_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  bool fits = true;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    fits = fits && !__builtin_mul_overflow(product, factor, &product);
  }
  return fits ? product : std::numeric_limits<int64_t>::max();
}

}  // namespace mixed_gemm
