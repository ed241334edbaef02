// Codes of one packed word -> fp16 or bf16 pairs, for every weight type: the one that loops take
// where nothing is to be folded into it. convert_step(word, step, pairs): the two pairs of an mma
// step, each value times kPairScale.
#pragma once
#include "dequant/integer_converter.h"

namespace mixed_gemm {

// Integers. A weight type of other values has a specialisation.
template <typename Format, typename Weight>
struct WeightConverter : IntegerConverter<Format, Weight> {};

}  // namespace mixed_gemm
