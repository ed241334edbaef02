// Converts the codes of one packed word to fp16 or bf16 pairs, for every weight type: loops take it
// where nothing is to be folded into it. convert_step(word, step, pairs) makes the two pairs of an
// mma step, each value times kPairScale; of types that are no integers, over kMultiplierX2. It is
// static but for books, whose converter has their values.
#pragma once
#include "dequant/book_converter.h"
#include "dequant/float_converter.h"
#include "dequant/integer_converter.h"

namespace mixed_gemm {

template <typename Format, typename Weight>
struct WeightConverter : IntegerConverter<Format, Weight> {};
template <typename Format>
struct WeightConverter<Format, E2M1> : FloatConverter<Format, E2M1> {};
template <typename Format>
struct WeightConverter<Format, E4M3> : FloatConverter<Format, E4M3> {};
template <typename Format>
struct WeightConverter<Format, NF4> : BookConverter<Format> {
  using BookConverter<Format>::BookConverter;
};
template <typename Format>
struct WeightConverter<Format, FP4> : BookConverter<Format> {
  using BookConverter<Format>::BookConverter;
};

// A converter of a type, whether it needs the values or not.
template <typename Converter, typename Weight>
MIXED_GEMM_HOST_DEVICE Converter converter_of(const CodeValues<Weight>& values) {
  if constexpr (Weight::kHasBook) {
    return Converter(values);
  } else {
    return Converter();
  }
}

// A pair of scales as the weights of a type meet them.
template <typename Format, typename Weight>
MIXED_GEMM_HOST_DEVICE uint32_t scale_of_pairs(uint32_t scales) {
  if constexpr (!Weight::kIsInteger) {
    constexpr uint32_t kMultiplier = WeightConverter<Format, Weight>::kMultiplierX2;
    if constexpr (kMultiplier != Format::kOneX2) return mul_x2<Format>(scales, kMultiplier);
  }
  return scales;
}

}  // namespace mixed_gemm
