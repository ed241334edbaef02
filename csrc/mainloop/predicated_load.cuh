// Loads that leave the register as it is where the predicate is false. In PTX: from C++ they become
// branches, or registers zeroed before every load.
#pragma once
#include <cstdint>

namespace mixed_gemm {

__device__ inline void load_if(bool predicate, uint4& v, const void* pointer) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0;"
      " @p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "l"(pointer), "r"(static_cast<int>(predicate)));
}

// For what is read once, by one SM: it neither stays in L1 nor pushes other things out of it.
// kFirst: right behind wait_for_kernel_before(), in front of which ptxas would move an .nc load.
template <bool kFirst>
__device__ void load_once_if(bool predicate, uint4& v, const void* pointer) {
  if constexpr (kFirst) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0;"
        " @p ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(pointer), "r"(static_cast<int>(predicate))
        : "memory");
  } else {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %5, 0;"
        " @p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4]; }"
        : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
        : "l"(pointer), "r"(static_cast<int>(predicate)));
  }
}

// The same for half a vector.
template <bool kFirst>
__device__ void load_once_if(bool predicate, uint32_t& x, uint32_t& y, const void* pointer) {
  if constexpr (kFirst) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %3, 0;"
        " @p ld.global.L1::no_allocate.v2.u32 {%0, %1}, [%2]; }"
        : "+r"(x), "+r"(y)
        : "l"(pointer), "r"(static_cast<int>(predicate))
        : "memory");
  } else {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %3, 0;"
        " @p ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2]; }"
        : "+r"(x), "+r"(y)
        : "l"(pointer), "r"(static_cast<int>(predicate)));
  }
}
__device__ inline void load_if(bool predicate, uint32_t& x, uint32_t& y, const void* pointer) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.global.nc.v2.u32 {%0, %1}, [%2]; }"
               : "+r"(x), "+r"(y)
               : "l"(pointer), "r"(static_cast<int>(predicate)));
}
__device__ inline void load_shared_if(bool predicate, uint32_t& x, uint32_t& y, unsigned address) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.shared.v2.u32 {%0, %1}, [%2]; }"
               : "+r"(x), "+r"(y)
               : "r"(address), "r"(static_cast<int>(predicate))
               : "memory");
}

// 16 bits into a whole register: ptxas packs narrower ones, and waits for the memory to do so.
__device__ inline void load_16_bits_if(bool predicate, uint32_t& v, const void* pointer) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.u16 %0, [%1]; }"
               : "+r"(v)
               : "l"(pointer), "r"(static_cast<int>(predicate)));
}

__device__ inline void load_shared_if(bool predicate, uint4& v, unsigned address) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %5, 0;"
      " @p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4]; }"
      : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
      : "r"(address), "r"(static_cast<int>(predicate))
      : "memory");
}

}  // namespace mixed_gemm
