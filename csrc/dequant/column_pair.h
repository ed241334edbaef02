// What makes weights of two columns out of stored integers, each column in one half of the
// registers: w / kUnit = (q - t) * scale + addend. Made once for a row of scales; then a weight
// costs what it does without zero points.
#pragma once
#include <cstdint>

#include "dequant/folding_converter.h"

namespace mixed_gemm {

template <typename Format, int kBits, bool kZeros>
class ColumnPair {
  using Converter = FoldingConverter<Format, kBits>;

 public:
  // folded: all bits in zero mode "sub", where only what the converter leaves is added. That is
  // never larger than the weight, so two roundings are the worst. None in mode "add".
  MIXED_GEMM_HOST_DEVICE void set(uint32_t scales, uint32_t zeros, uint32_t folded) {
    scales_ = scales;
    if constexpr (kZeros) {
      const uint32_t parts = Converter::parts(zeros);
      uint32_t minus_rest;
      offsets_ = Converter::fold(parts & folded, minus_rest);
      addends_ = fma_x2<Format>(minus_rest, scales, parts & ~folded);
    }
  }

  // Pairs of column `half`, as IntegerConverter's, but scaled, and parts of kUnit.
  MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, int half,
                                           uint32_t (&pairs)[2]) const {
    const uint32_t scale = both_halves(scales_, half);
    if constexpr (kZeros) {
      const uint32_t addend = both_halves(addends_, half);
      Converter::convert_step(
          word, step, {both_halves(offsets_.first, half), both_halves(offsets_.second, half)},
          pairs);
      for (uint32_t& pair : pairs) pair = fma_x2<Format>(pair, scale, addend);
    } else {
      Converter::convert_step(word, step, pairs);
      for (uint32_t& pair : pairs) pair = mul_x2<Format>(pair, scale);
    }
  }

 private:
  uint32_t scales_, addends_;
  PairOffsets offsets_;
};

}  // namespace mixed_gemm
