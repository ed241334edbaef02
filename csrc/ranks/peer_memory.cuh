// Loads and stores that ranks see of each other. Each of the two words of a unit is written and
// read whole, in no order (PTX gives that for 8 bytes, and not for all 16). Who reads the epoch of
// a chunk sees all that its writer, and the block that it had met before, had written.
#pragma once
#include <cstdint>

#include "ranks/inbox.h"

namespace mixed_gemm {

__device__ inline void store_unit(void* to, const Unit& unit) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(unit.words[0]),
               "l"(unit.words[1])
               : "memory");
}
__device__ inline Unit load_unit(const void* from) {
  Unit unit;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(unit.words[0]), "=l"(unit.words[1])
               : "l"(from)
               : "memory");
  return unit;
}

__device__ inline void release_epoch(void* to, uint64_t epoch) {
  asm volatile("st.release.sys.global.b64 [%0], %1;" ::"l"(to), "l"(epoch) : "memory");
}
__device__ inline uint64_t acquire_epoch(const void* from) {
  uint64_t epoch;
  asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(epoch) : "l"(from) : "memory");
  return epoch;
}

// Plain loads and stores of 16 bytes, around L1, which does not see what others write.
__device__ inline void store_piece(void* to, const Piece& piece) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(piece.data[0]),
               "r"(piece.data[1]), "r"(piece.data[2]), "r"(piece.data[3])
               : "memory");
}
__device__ inline Piece load_piece(const void* from) {
  Piece piece;
  asm volatile("ld.global.cg.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.data[0]), "=r"(piece.data[1]), "=r"(piece.data[2]), "=r"(piece.data[3])
               : "l"(from)
               : "memory");
  return piece;
}

}  // namespace mixed_gemm
