// The values of a book of 16, rounded to fp16 or bf16 once, as kernels take them when they run.
#pragma once
#include <cstdint>
#include <type_traits>

#include "core/half_arithmetic.h"
#include "core/weight_type.h"

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

// Byte j of low[i] and of high[i] are the bytes of the value of code 4 i + j: prmt looks up each of
// the two in two words.
struct Book {
  uint32_t low[4], high[4];
};

template <typename Format, typename Weight>
constexpr Book book_of() {
  Book book{};
  for (uint32_t code = 0; code < 16; ++code) {
    const uint32_t value = encode_constant<Format>(Weight::value(code));
    book.low[code / 4] |= (value & 0xffu) << (8 * (code % 4));
    book.high[code / 4] |= (value >> 8) << (8 * (code % 4));
  }
  return book;
}

// The bytes of a table of all pairs of values (dequant/pair_table.cuh); a wide one has gaps.
constexpr int pair_table_bytes(bool wide) { return 256 * 32 * 4 * (wide ? 2 : 1); }

// A kernel takes these beside the codes of the type that it is compiled for: a book, or nothing.
struct NoBook {};
template <typename Weight>
using CodeValues = std::conditional_t<Weight::kHasBook, Book, NoBook>;

// Returns the values of `type`, one of the types whose compiled_weight() is Weight's.
template <typename Format, typename Weight>
CodeValues<Weight> code_values(WeightType type) {
  if constexpr (Weight::kHasBook) {
    return with_weight(type, [](auto weight) {
      using Type = decltype(weight);
      if constexpr (Type::kHasBook) return book_of<Format, Type>();
      return Book{};  // of no type that comes here
    });
  }
  return {};
}

}  // namespace mixed_gemm
