// Body of a convolution's instantiation file: every tile for the three scale modes.
#pragma once
#include "conv/launch.cuh"
#include "conv/launchers.h"
#include "dequant/cutlass_element.cuh"

namespace mixed_gemm {

template <ElementType kElement, WeightType kWeight>
const ConvKernels::Launchers& ConvKernels::launchers(int mode) {
  using Element = typename CutlassElement<kElement>::Type;
  using Weight = WeightOf<kWeight>;
  static constexpr Launchers kTable[] = {kConvLaunchers<Element, Weight, ScaleMode::kCoarse>,
                                         kConvLaunchers<Element, Weight, ScaleMode::kCoarseZero>,
                                         kConvLaunchers<Element, Weight, ScaleMode::kFineZero>};
  const auto of = static_cast<ScaleMode>(mode);
  return kTable[of == ScaleMode::kCoarse ? 0 : of == ScaleMode::kCoarseZero ? 1 : 2];
}

}  // namespace mixed_gemm
