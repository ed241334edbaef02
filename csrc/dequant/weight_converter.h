// Converts the codes of one packed word to fp16 or bf16 pairs, for every weight type: loops take it
// where nothing is to be folded into it. convert_step(word, step, pairs) makes the two pairs of an
// mma step, each value times kPairScale.
#pragma once
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// The converter of integers. A weight type of other values has a specialisation.
template <typename Format, typename Weight>
struct WeightConverter : IntegerConverter<Format, Weight> {};

}  // namespace mixed_gemm
