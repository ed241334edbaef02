// Packed codes of a book of 16 values -> fp16 or bf16 pairs, each value rounded once, when the
// tables were made. The bytes of the values, a table of 16 for each of the two bytes, are looked up
// by prmt with the codes of an mma step as its selector: 11 instructions for 4 weights, where
// integers take 6.
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/half_arithmetic.h"
#include "core/weight_type.h"
#include "layout/code_places.h"

namespace mixed_gemm {

// encode() of core/half_arithmetic.h for constants that are 0 or normal numbers of the format.
template <typename Format>
constexpr uint16_t encode_constant(float value) {
  constexpr int kBias = (1 << (Format::kExponentBits - 1)) - 1;
  const uint16_t sign = value < 0 ? 0x8000 : 0;
  double magnitude = value < 0 ? -value : value;
  if (magnitude == 0) return sign;
  int exponent = kBias;
  for (; magnitude < 1; magnitude *= 2) --exponent;
  for (; magnitude >= 2; magnitude /= 2) ++exponent;
  const double units = magnitude * (1 << Format::kMantissaBits);
  int64_t whole = static_cast<int64_t>(units);
  const double rest = units - static_cast<double>(whole);
  if (rest > 0.5 || (rest == 0.5 && whole % 2 == 1)) ++whole;
  // A carry moves into the exponent by itself.
  return static_cast<uint16_t>(sign | (whole + (int64_t{exponent - 1} << Format::kMantissaBits)));
}

// Byte kByte of the values, four of them in a word: constants, not calls, which a device has none
// of.
template <typename Format, typename Weight, int kByte>
struct BookBytes {
  static constexpr uint32_t from(int first) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      const uint32_t value = encode_constant<Format>(Weight::value(first + i));
      word |= (value >> (8 * kByte) & 0xffu) << (8 * i);
    }
    return word;
  }
  static constexpr uint32_t k0 = from(0), k4 = from(4), k8 = from(8), k12 = from(12);
};

template <typename Format, typename Weight>
struct BookConverter {
  static constexpr float kPairScale = 1.f;
  static constexpr int kRatio = 1, kBias = 0;
  static constexpr uint32_t kMultiplierX2 = Format::kOneX2;

  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    const uint32_t codes = step == 0 ? word : word >> 16;
    const uint32_t in_half = codes & 0x7777u;  // bit 3 of a selector would replicate a sign
    const uint32_t half = lop3<kLutAndOr>(codes >> 1, 0x4444u, 0x3210u);
    const uint32_t low = bytes<0>(in_half, half), high = bytes<1>(in_half, half);
    pairs[0] = prmt<0x5140>(low, high);
    pairs[1] = prmt<0x7362>(low, high);
  }

 private:
  // A byte of each of four values. in_half: selects among 8 values, half: among the two halves.
  template <int kByte>
  static MIXED_GEMM_HOST_DEVICE uint32_t bytes(uint32_t in_half, uint32_t half) {
    using Bytes = BookBytes<Format, Weight, kByte>;
    return prmt(prmt(Bytes::k0, Bytes::k4, in_half), prmt(Bytes::k8, Bytes::k12, in_half), half);
  }
};

}  // namespace mixed_gemm
