// Loads that leave the registers as they are where the predicate is false, as
// mainloop/predicated_load.cuh has them.
//
// They are no ld.global.nc, which promises that the memory does not change while the kernel runs:
// ptxas moved two to seven of the first loads of nearly every kernel before pdl_wait(). (Behind the
// first unit, where it stays, it is no faster.)
#pragma once
#include <cstdint>

namespace mixed_gemm {

// Loads around L1 what one SM reads once. Its neighbours read the rest of the line, so all of it
// may come from memory at once. But then the halves of L2 send each other more: 895 K sectors, not
// 664 K, at 4096 x 14336, where half a line took 4 % less time at M = 1 and 2 % more at M = 32.
template <bool kWholeLines>
__device__ inline void load_words_if(bool predicate, uint32_t (&words)[1], const uint32_t* from) {
  if constexpr (kWholeLines) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0;"
        " @p ld.global.L1::no_allocate.L2::128B.u32 %0, [%1]; }"
        : "+r"(words[0])
        : "l"(from), "r"(static_cast<int>(predicate)));
  } else {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %2, 0;"
        " @p ld.global.L1::no_allocate.L2::64B.u32 %0, [%1]; }"
        : "+r"(words[0])
        : "l"(from), "r"(static_cast<int>(predicate)));
  }
}

template <bool kWholeLines>
__device__ inline void load_words_if(bool predicate, uint32_t (&words)[2], const uint32_t* from) {
  static_assert(kWholeLines);
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %3, 0;"
      " @p ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2]; }"
      : "+r"(words[0]), "+r"(words[1])
      : "l"(from), "r"(static_cast<int>(predicate)));
}

__device__ inline void load_vector_if(bool predicate, uint4& v, const void* from) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0;"
      " @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(from), "r"(static_cast<int>(predicate)));
}

}  // namespace mixed_gemm
