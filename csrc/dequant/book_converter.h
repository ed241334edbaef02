// Packed codes of a book of 16 values -> fp16 or bf16 pairs. The bytes of the values, a table of 16
// for each of the two bytes, are looked up by prmt with the codes of an mma step as its selector:
// 11 instructions for 4 weights, where integers take 6.
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "dequant/book.h"
#include "layout/code_places.h"

namespace mixed_gemm {

template <typename Format>
class BookConverter {
 public:
  static constexpr float kPairScale = 1.f;
  static constexpr int kRatio = 1, kBias = 0;
  static constexpr uint32_t kMultiplierX2 = Format::kOneX2;

  // The book outlives the converter.
  explicit MIXED_GEMM_HOST_DEVICE BookConverter(const Book& book) : book_(book) {}

  MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) const {
    const uint32_t codes = step == 0 ? word : word >> 16;
    const uint32_t in_half = codes & 0x7777u;  // bit 3 of a selector would replicate a sign
    const uint32_t half = lop3<kLutAndOr>(codes >> 1, 0x4444u, 0x3210u);
    const uint32_t low = bytes(book_.low, in_half, half), high = bytes(book_.high, in_half, half);
    pairs[0] = prmt<0x5140>(low, high);
    pairs[1] = prmt<0x7362>(low, high);
  }

 private:
  // A byte of each of four values. in_half: selects among 8 values, half: among the two halves.
  static MIXED_GEMM_HOST_DEVICE uint32_t bytes(const uint32_t (&of)[4], uint32_t in_half,
                                               uint32_t half) {
    return prmt(prmt(of[0], of[1], in_half), prmt(of[2], of[3], in_half), half);
  }

  const Book& book_;
};

}  // namespace mixed_gemm
