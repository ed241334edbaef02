// prmt.b32 and lop3.b32: PTX on the device, a bit-exact loop on the host, so that every converter
// built on them is tested over all its inputs without a GPU. PTX ISA 8.x, sections "prmt" and
// "lop3".
#pragma once
#include <cstdint>

#include "core/macros.h"

namespace mixed_gemm {

// Byte i of the result is byte (selector >> 4i) & 7 of {b, a}; bit 3 of a selector nibble
// replicates the sign instead.
MIXED_GEMM_HOST_DEVICE constexpr uint32_t prmt_twin(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t pool = (static_cast<uint64_t>(b) << 32) | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = (selector >> (4 * i)) & 0xf;
    const uint32_t byte = static_cast<uint32_t>(pool >> (8 * (nibble & 7))) & 0xff;
    const uint32_t picked = (nibble & 8) ? ((byte & 0x80) ? 0xffu : 0u) : byte;
    result |= picked << (8 * i);
  }
  return result;
}

// Bit of the truth table `lut` at index (a << 2 | b << 1 | c), for each of the 32 bit positions.
MIXED_GEMM_HOST_DEVICE constexpr uint32_t lop3_twin(uint32_t a, uint32_t b, uint32_t c,
                                                    uint32_t lut) {
  uint32_t result = 0;
  for (int row = 0; row < 8; ++row) {
    if ((lut >> row & 1) == 0) continue;
    result |= (row & 4 ? a : ~a) & (row & 2 ? b : ~b) & (row & 1 ? c : ~c);
  }
  return result;
}

template <uint32_t kSelector>
MIXED_GEMM_HOST_DEVICE uint32_t prmt(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "n"(kSelector));
  return result;
#else
  return prmt_twin(a, b, kSelector);
#endif
}

// With a selector that is no constant, of which the low half counts.
MIXED_GEMM_HOST_DEVICE uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
  return result;
#else
  return prmt_twin(a, b, selector);
#endif
}

template <uint32_t kLut>
MIXED_GEMM_HOST_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
#if defined(__CUDA_ARCH__)
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kLut));
  return result;
#else
  return lop3_twin(a, b, c, kLut);
#endif
}

// Half `half` (0: the low one) of a word, in both halves. The packed instructions of
// core/half_arithmetic.h take such an operand as it is (".H0_H0") when the assembler sees halves of
// registers, as here; a prmt that does the same stays an instruction.
MIXED_GEMM_HOST_DEVICE uint32_t both_halves(uint32_t word, int half) {
#if defined(__CUDA_ARCH__)
  uint32_t result;
  if (half == 0) {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low}; }"
        : "=r"(result)
        : "r"(word));
  } else {
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high}; }"
        : "=r"(result)
        : "r"(word));
  }
  return result;
#else
  return (word >> (16 * half) & 0xffffu) * 0x10001u;
#endif
}

// Truth tables are built the way the PTX manual does: apply the expression to these three
// constants.
constexpr uint32_t kLutA = 0xf0, kLutB = 0xcc, kLutC = 0xaa;
constexpr uint32_t kLutAndOr = (kLutA & kLutB) | kLutC;                      // (a & b) | c
constexpr uint32_t kLutNotAndOr = ((kLutA ^ 0xff) & kLutB) | kLutC;          // (~a & b) | c
constexpr uint32_t kLutSelect = (kLutA & kLutB) | ((kLutA ^ 0xff) & kLutC);  // a ? b : c

}  // namespace mixed_gemm
