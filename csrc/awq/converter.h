// Converts AutoAWQ words to pairs of 16-bit floats along K. A word holds 8 neighbouring columns of
// one k, in the order 0 2 4 6 1 3 5 7; the mma operand wants k and k + 1 of one column in one
// register. So the halves of two words are brought together first, then each nibble position is
// both k of a column. tests/cpp/test_awq_converter.cpp tests the host twin.
#pragma once
#include "core/bit_ops.h"
#include "core/half_arithmetic.h"

namespace mixed_gemm {

template <typename Format>
struct AwqConverter {
  // fp16 reads an odd nibble where it lies, as 1024 + 16 code, and shifts with the subtraction. A
  // mantissa of bf16 has room for one nibble only.
  static constexpr bool kTwoNibbles = Format::kMantissaBits == Half::kMantissaBits;
  // A number whose mantissa has units of 1 and room for 4 bits: 1024 in fp16, 128 in bf16, twice.
  static constexpr uint32_t kMagic = kTwoNibbles ? 0x64006400u : 0x43004300u;
  static constexpr uint32_t kSixteenth = 0x2c002c00u, kMinusSixteenth = 0xac00ac00u;  // fp16

  // low: nibble t is column 2 t; high: column 2 t + 1. Low half of the words: k, high half: k + 1.
  struct Halves {
    uint32_t low, high;
  };
  static MIXED_GEMM_HOST_DEVICE Halves interleave(uint32_t word_k, uint32_t word_next) {
    return {prmt<0x5410>(word_k, word_next), prmt<0x7632>(word_k, word_next)};
  }

  // The zero points of columns 2 t (low half) and 2 t + 1 of a word, as difference() wants them.
  static MIXED_GEMM_HOST_DEVICE uint32_t zeros(uint32_t word, int t) {
    if (!in_place(t)) return biased(word, t);
    return mul_x2<Format>(biased(word, t), kMinusSixteenth);  // -(64 + zero)
  }

  // code - zero of nibble t of both halves, exact. `zero` is the same column's, in both halves.
  static MIXED_GEMM_HOST_DEVICE uint32_t difference(uint32_t half, int t, uint32_t zero) {
    if (!in_place(t)) return sub_x2<Format>(biased(half, t), zero);
    return fma_x2<Format>(biased(half, t), kSixteenth, zero);
  }

  // The low or the high half, in both: an operand that packed arithmetic reads so by itself, where
  // ptxas sees halves being moved (and a PRMT of its own where it sees one).
  static MIXED_GEMM_HOST_DEVICE uint32_t both(uint32_t pair, bool high) {
#if defined(__CUDA_ARCH__)
    uint32_t result;
    if (high) {
      asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(result) : "r"(pair));
    } else {
      asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(result) : "r"(pair));
    }
    return result;
#else
    return high ? prmt<0x3232>(pair, 0u) : prmt<0x1010>(pair, 0u);
#endif
  }

 private:
  static constexpr MIXED_GEMM_HOST_DEVICE bool in_place(int t) { return kTwoNibbles && t % 2 == 1; }

  // Magic number + code, or + 16 code where the nibble stays in place.
  static MIXED_GEMM_HOST_DEVICE uint32_t biased(uint32_t half, int t) {
    const uint32_t mask = in_place(t) ? 0x00f000f0u : 0x000f000fu;
    return lop3<kLutAndOr>(half >> (4 * (in_place(t) ? t - 1 : t)), mask, kMagic);
  }
};

}  // namespace mixed_gemm
