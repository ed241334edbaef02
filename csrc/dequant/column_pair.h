// Converts stored integers to weights of two columns, each column in one half of the registers:
// w / kResultScale = (q - t) * scale + addend. t and addend are computed once for a row of scales;
// then a weight costs what it does without zero points.
#pragma once
#include <cstdint>

#include "core/bit_ops.h"
#include "core/quant_scheme.h"
#include "dequant/folding_converter.h"

namespace mixed_gemm {

// The zero mode of a launch: "sub" folds zero points into the offsets, "add" adds them.
struct ZeroFolding {
  uint32_t mask;        // all bits for "sub"
  uint32_t pair_scale;  // kPairScaleX2 of the converter, masked

  template <typename Converter>
  static MIXED_GEMM_HOST_DEVICE ZeroFolding of(ZeroMode mode) {
    const uint32_t mask = mode == ZeroMode::kSub ? ~0u : 0u;
    return {mask, mask & Converter::kPairScaleX2};
  }
};

// Where zero points are whole numbers, nothing is left to add.
enum class ZeroPoints { kNone, kWhole, kAny };

template <typename Format, typename Weight, ZeroPoints kZeroPoints>
class ColumnPair {
  static constexpr bool kZeros = kZeroPoints != ZeroPoints::kNone;

 public:
  using Converter = FoldingConverter<Format, Weight>;

  // The scales and zero points of both columns are loaded here as they are stored; fold(), or
  // fold_whole(), makes the operands of convert_step() of them (dequant/folding_converter.h).
  uint32_t loaded[kZeros ? 2 : 1];

  // "sub" adds only the part that the converter leaves. That is never larger than the weight, so
  // two roundings are the worst.
  MIXED_GEMM_HOST_DEVICE void fold(const ZeroFolding& folding) {
    if constexpr (!Weight::kIsInteger) loaded[0] = scale_of_pairs<Format, Weight>(loaded[0]);
    if constexpr (kZeroPoints == ZeroPoints::kAny) {
      uint32_t minus_rest;  // with "add": all of the zero point
      offsets_ = Converter::fold(loaded[1], folding.pair_scale, minus_rest);
      addends_ = mul_x2<Format>(minus_rest,
                                lop3<kLutSelect>(folding.mask, loaded[0], Format::kMinusOneX2));
    }
  }

  MIXED_GEMM_HOST_DEVICE void fold_whole(uint32_t& missed) {
    if constexpr (kZeroPoints == ZeroPoints::kWhole) {
      offsets_ = Converter::fold_whole(loaded[1], missed);
    }
  }

  // Makes the pairs of column `half` as a converter does, but scaled and over kResultScale.
  template <typename AnyConverter>
  MIXED_GEMM_HOST_DEVICE void convert_step(const AnyConverter& converter, uint32_t word, int step,
                                           int half, uint32_t (&pairs)[2]) const {
    const uint32_t scale = both_halves(loaded[0], half);
    if constexpr (kZeros) {
      converter.convert_step(
          word, step, {both_halves(offsets_.first, half), both_halves(offsets_.second, half)},
          pairs);
    } else {
      converter.convert_step(word, step, pairs);
    }
    if constexpr (kZeroPoints == ZeroPoints::kAny) {
      const uint32_t addend = both_halves(addends_, half);
      for (uint32_t& pair : pairs) pair = fma_x2<Format>(pair, scale, addend);
    } else {
      for (uint32_t& pair : pairs) pair = mul_x2<Format>(pair, scale);
    }
  }

 private:
  uint32_t addends_;
  PairOffsets offsets_;
};

}  // namespace mixed_gemm
