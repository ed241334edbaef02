// Loads that leave the register as it is where the predicate is false. They are PTX, since from C++
// they become branches, or registers zeroed before every load.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// LOAD: an instruction without its width. ADDRESS: an operand. Behind it: clobbers.
#define MIXED_GEMM_LOAD_FOUR_IF(LOAD, ADDRESS, ...)             \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %5, 0; @p " LOAD \
               ".v4.u32 {%0, %1, %2, %3}, [%4]; }"              \
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)     \
               : ADDRESS, "r"(static_cast<int>(predicate))      \
               : __VA_ARGS__)
#define MIXED_GEMM_LOAD_TWO_IF(LOAD, ADDRESS, ...)                                          \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p " LOAD ".v2.u32 {%0, %1}, [%2]; }" \
               : "+r"(x), "+r"(y)                                                           \
               : ADDRESS, "r"(static_cast<int>(predicate))                                  \
               : __VA_ARGS__)

__device__ inline void load_if(bool predicate, uint4& v, const void* pointer) {
  MIXED_GEMM_LOAD_FOUR_IF("ld.global.nc", "l"(pointer));
}
__device__ inline void load_if(bool predicate, uint32_t& x, uint32_t& y, const void* pointer) {
  MIXED_GEMM_LOAD_TWO_IF("ld.global.nc", "l"(pointer));
}

// Loads bytes that are read once, by one SM: they neither stay in L1 nor push others out of it.
// kFirst: right behind pdl_wait(), in front of which ptxas would move an .nc load.
template <bool kFirst>
__device__ void load_once_if(bool predicate, uint4& v, const void* pointer) {
  if constexpr (kFirst) {
    MIXED_GEMM_LOAD_FOUR_IF("ld.global.L1::no_allocate", "l"(pointer), "memory");
  } else {
    MIXED_GEMM_LOAD_FOUR_IF("ld.global.nc.L1::no_allocate", "l"(pointer));
  }
}
template <bool kFirst>
__device__ void load_once_if(bool predicate, uint32_t& x, uint32_t& y, const void* pointer) {
  if constexpr (kFirst) {
    MIXED_GEMM_LOAD_TWO_IF("ld.global.L1::no_allocate", "l"(pointer), "memory");
  } else {
    MIXED_GEMM_LOAD_TWO_IF("ld.global.nc.L1::no_allocate", "l"(pointer));
  }
}

__device__ inline void load_shared_if(bool predicate, uint4& v, unsigned address) {
  MIXED_GEMM_LOAD_FOUR_IF("ld.shared", "r"(address), "memory");
}
__device__ inline void load_shared_if(bool predicate, uint32_t& x, uint32_t& y, unsigned address) {
  MIXED_GEMM_LOAD_TWO_IF("ld.shared", "r"(address), "memory");
}

#undef MIXED_GEMM_LOAD_FOUR_IF
#undef MIXED_GEMM_LOAD_TWO_IF

// Loads 16 bits into a whole register: ptxas packs narrower ones, and waits for memory to do so.
__device__ inline void load_16_bits_if(bool predicate, uint32_t& v, const void* pointer) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
               : "+r"(v)
               : "l"(pointer), "r"(static_cast<int>(predicate)));
}

}  // namespace mixed_gemm
