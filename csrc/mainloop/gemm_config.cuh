// One compiled kernel as a type: element, weight type, scale mode and a row of a table of tiles,
// with what follows from them.
#pragma once
#include <type_traits>

#include "core/half_arithmetic.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"
#include "dequant/offset_converter.h"
#include "dequant/stored_converter.h"
#include "dequant/weight_converter.h"
#include "mainloop/multistage_stage.h"
#include "mainloop/warp_tiling.cuh"
#include "problem/gemm.h"

namespace mixed_gemm {

// Whether code is compiled for a GPU before sm_90. Host code is compiled for no architecture and
// sees false, whatever the GPU: it may ask for what concerns sm_90 alone (skinny/launch.cuh: PDL).
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kBeforeSm90 = true;
#else
constexpr bool kBeforeSm90 = false;
#endif

template <typename Element>
struct FormatOf;
template <>
struct FormatOf<cutlass::half_t> {
  using Type = Half;
};
template <>
struct FormatOf<cutlass::bfloat16_t> {
  using Type = BFloat16;
};

// The type of the factors that multiply the sums of columns behind all groups: scales per channel
// of integers, GemmProblem::factor of floats.
template <typename Element, typename Weight>
using FactorOf = std::conditional_t<Weight::kIsInteger, Element, float>;

// Where an epilogue reads it; null: there is none.
template <typename Config>
const typename Config::Factor* column_factor(const GemmProblem& p) {
  if constexpr (Config::Weight::kIsInteger) {
    return is_scaled(Config::kScales) ? nullptr
                                      : static_cast<const typename Config::Factor*>(p.scales);
  } else {
    return p.factor;
  }
}

// Tiles: row(kRow), mode(kMode), and kOffsetsPerChannel, whether bf16 weights of int4 keep an
// offset where scales are per channel.
template <typename Element_, typename Weight_, int kMode, int kRow, typename Tiles>
struct GemmConfig : WarpTiling<Tiles, kRow> {
  using Element = Element_;
  using Factor = FactorOf<Element, Weight_>;
  using Format = typename FormatOf<Element>::Type;
  using Weight = Weight_;
  static constexpr ScaleMode kScales = Tiles::mode(kMode);
  // Replaces WarpTiling's, which knows no weights.
  static constexpr int kStages = num_stages(GemmConfig::kTile, Weight::kType);
  static constexpr int kSteps = kTileK / kMmaK;  // mma steps in a k-tile
  static constexpr bool kScalesSums = scales_sums(GemmConfig::kTile, kScales);
  static constexpr bool kStagesZeros = stages_zeros(GemmConfig::kTile, kScales);
  // Zero points take the sums of the tokens anyway: then the bias of int4 leaves with them, 4 % of
  // the time. (Without zero points 3 % slower.)
  static constexpr bool kZeroProducts = kScalesSums && kScales.zeros;
  // A word takes one shift in place of three. Where weights are scaled one by one, kPairScale would
  // have to be taken out again.
  static constexpr bool kOffsets =
      kHasOffsets<Format, Weight> && std::is_same_v<Format, BFloat16> &&
      (kScalesSums || (!is_scaled(kScales) && Tiles::kOffsetsPerChannel));
  using Converter =
      std::conditional_t<kZeroProducts && kHasStored<Weight>,
                         StoredConverter<Format, Weight, /*kOneScale=*/true>,
                         std::conditional_t<kOffsets, ConstantOffsetConverter<Format, Weight>,
                                            WeightConverter<Format, Weight>>>;
  static_assert(GemmConfig::kTile.warp_n % 32 == 0, "B is loaded by 32 columns");
};

}  // namespace mixed_gemm
