// A word of a 16-byte vector in registers.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// i must be known once loops are unrolled: a register by number would be local memory.
__device__ inline uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

}  // namespace mixed_gemm
