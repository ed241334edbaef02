// Body of a convolution's instantiation file: every tile for the three scale modes.
#pragma once
#include "conv/launch.cuh"
#include "conv/launchers.h"
#include "dequant/cutlass_element.cuh"

namespace mixed_gemm {

template <ElementType kElement, int kBits>
const ConvLaunchers& conv_launchers(ScaleMode mode) {
  using Element = typename CutlassElement<kElement>::Type;
  static constexpr ConvLaunchers kTable[] = {kConvLaunchers<Element, kBits, ScaleMode::kCoarse>,
                                             kConvLaunchers<Element, kBits, ScaleMode::kCoarseZero>,
                                             kConvLaunchers<Element, kBits, ScaleMode::kFineZero>};
  return kTable[mode == ScaleMode::kCoarse ? 0 : mode == ScaleMode::kCoarseZero ? 1 : 2];
}

}  // namespace mixed_gemm
