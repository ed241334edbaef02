// AutoAWQ words -> pairs of 16-bit floats along K. A word holds 8 neighbouring columns of one k, in
// the order 0 2 4 6 1 3 5 7; the mma operand wants k and k + 1 of one column in one register. So
// the halves of two words are brought together first, then each nibble position is both k of a
// column. Host twin: tests/cpp/test_awq_converter.cpp.
#pragma once
#include "core/bit_ops.h"
#include "core/half_arithmetic.h"

namespace mixed_gemm {

template <typename Format>
struct AwqConverter {
  // A number whose mantissa has units of 1 and room for 4 bits: 1024 in fp16, 128 in bf16, twice.
  static constexpr uint32_t kMagic =
      Format::kMantissaBits == Half::kMantissaBits ? 0x64006400u : 0x43004300u;

  // low: nibble t is column 2 t; high: column 2 t + 1. Low half of the words: k, high half: k + 1.
  struct Halves {
    uint32_t low, high;
  };
  static MIXED_GEMM_HOST_DEVICE Halves interleave(uint32_t word_k, uint32_t word_next) {
    return {prmt<0x5410>(word_k, word_next), prmt<0x7632>(word_k, word_next)};
  }

  // The codes of nibble t of both halves, plus the magic number: exact.
  static MIXED_GEMM_HOST_DEVICE uint32_t biased(uint32_t half, int t) {
    return lop3<(kLutA & kLutB) | kLutC>(half >> (4 * t), 0x000f000fu, kMagic);
  }

  // (code - zero) * scale of both k: exact difference, one rounding. `zero` is biased alike.
  static MIXED_GEMM_HOST_DEVICE uint32_t dequantize(uint32_t code, uint32_t zero, uint32_t scale) {
    return mul_x2<Format>(sub_x2<Format>(code, zero), scale);
  }
};

}  // namespace mixed_gemm
