// Converts the codes of one packed word to fp16 or bf16 pairs, for every weight type: loops take it
// where nothing is to be folded into it. convert_step(word, step, pairs) makes the two pairs of an
// mma step, each value times kPairScale.
#pragma once
#include "dequant/float_converter.h"
#include "dequant/integer_converter.h"

namespace mixed_gemm {

template <typename Format, typename Weight, bool = Weight::kIsInteger>
struct WeightConverter : IntegerConverter<Format, Weight> {};
template <typename Format, typename Weight>
struct WeightConverter<Format, Weight, false> : FloatConverter<Format, Weight> {};

// A pair of scales as the weights of a type meet them.
template <typename Format, typename Weight>
MIXED_GEMM_HOST_DEVICE uint32_t scale_of_pairs(uint32_t scales) {
  if constexpr (Weight::kIsInteger) {
    return scales;
  } else {
    return mul_x2<Format>(scales, FloatConverter<Format, Weight>::kMultiplierX2);
  }
}

}  // namespace mixed_gemm
