// Packed int4 and int8 -> pairs of (u - bias - t) / kResultScale, exactly, for kernels that scale
// weights.
// t is the zero point rounded to what the offsets of dequant/offset_converter.h can hold: itself
// for the integral zero points of checkpoints. The rest goes into the addend of the fma that scales
// (dequant/column_pair.h), so no zero point costs an instruction a weight.
#pragma once
#include <cstdint>
#include <type_traits>

#include "core/half_arithmetic.h"
#include "dequant/offset_converter.h"
#include "dequant/weight_converter.h"

namespace mixed_gemm {

// convert_step() without offsets is for t = 0. fold() makes the offsets of the zero points of two
// columns, a column in each half, and t minus these, which is left to add; both are over
// kResultScale, as the pairs are. pair_scale: kPairScaleX2, or 0 to fold nothing.
template <typename Format, typename Weight, bool = kHasOffsets<Format, Weight>>
struct FoldingConverter {
  using Offsets = OffsetConverter<Format, Weight>;
  static constexpr int kResultScale = static_cast<int>(1 / Offsets::kPairScale);
  static constexpr uint32_t kPairScaleX2 = Offsets::kPairScaleX2;

  static MIXED_GEMM_HOST_DEVICE PairOffsets fold(uint32_t zeros, uint32_t pair_scale,
                                                 uint32_t& minus_rest) {
    const uint32_t first = fma_x2<Format>(bounded(zeros), pair_scale, Offsets::kMagic);
    const uint32_t t = sub_x2<Format>(first, Offsets::kMagic);
    minus_rest = kResultScale == 1 ? sub_x2<Format>(t, zeros)
                                   : fma_x2<Format>(zeros, Offsets::kPairScaleX2 ^ kSigns, t);
    return {first, sub_x2<Format>(Offsets::kSum, first)};
  }
  // Makes the same offsets, kPairScaleX2 for pair_scale. A rest that they do not hold sets bits of
  // `missed` other than the signs of both halves: zero points are whole as long as none is set.
  static MIXED_GEMM_HOST_DEVICE PairOffsets fold_whole(uint32_t zeros, uint32_t& missed) {
    if constexpr (kResultScale == 1) {
      const uint32_t first = sub_x2<Format>(bounded(zeros), Offsets::kMagic ^ kSigns);
      missed |= sub_x2<Format>(first, Offsets::kMagic) ^ zeros;  // one instruction, no subtraction
      return {first, sub_x2<Format>(Offsets::kSum, first)};
    } else {
      uint32_t minus_rest;
      const PairOffsets offsets = fold(zeros, kPairScaleX2, minus_rest);
      missed |= minus_rest;
      return offsets;
    }
  }

  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    Offsets::convert_step(word, step, offsets, pairs);
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, uint32_t (&pairs)[2]) {
    convert_step(word, step, PairOffsets::constant(Offsets::kPacked), pairs);
  }

 private:
  static constexpr uint32_t kSigns = 0x80008000u;
  // Keeps fp16 from overflowing.
  static MIXED_GEMM_HOST_DEVICE uint32_t bounded(uint32_t zeros) {
    constexpr bool kOverflows = std::is_same<Format, Half>::value;
    return kOverflows ? min_x2<Format>(zeros, Offsets::kMost * 0x10001u) : zeros;
  }
};

// Weights without zero points fold nothing.
template <typename Format, typename Weight>
struct FoldingConverter<Format, Weight, false> : WeightConverter<Format, Weight> {
  static_assert(!Weight::kIsInteger, "integers have zero points");
  static constexpr int kResultScale = 1;
  static constexpr uint32_t kPairScaleX2 = 0;
};

// bf16 needs two magic numbers for a byte: the zero point remains a subtraction.
template <>
struct FoldingConverter<BFloat16, Int8, false> : IntegerConverter<BFloat16, Int8> {
  using IntegerConverter<BFloat16, Int8>::convert_step;
  static constexpr int kResultScale = 1;
  static constexpr uint32_t kPairScaleX2 = BFloat16::kOneX2;

  static MIXED_GEMM_HOST_DEVICE PairOffsets fold(uint32_t zeros, uint32_t pair_scale,
                                                 uint32_t& minus_rest) {
    const uint32_t first = mul_x2<BFloat16>(zeros, pair_scale);
    minus_rest = sub_x2<BFloat16>(first, zeros);
    return {first, 0u};
  }
  static MIXED_GEMM_HOST_DEVICE PairOffsets fold_whole(uint32_t zeros, uint32_t& /*missed*/) {
    return {zeros, 0u};
  }
  static MIXED_GEMM_HOST_DEVICE void convert_step(uint32_t word, int step, PairOffsets offsets,
                                                  uint32_t (&pairs)[2]) {
    convert_step(word, step, pairs);
    for (uint32_t& pair : pairs) pair = sub_x2<BFloat16>(pair, offsets.first);
  }
};

}  // namespace mixed_gemm
