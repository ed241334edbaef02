// Body of a convolution's instantiation file: every tile for all modes.
#pragma once
#include "conv/launch.cuh"
#include "conv/launchers.h"
#include "dequant/cutlass_element.cuh"

namespace mixed_gemm {

// The launchers of a mode: null where it is not compiled.
template <typename Element, typename Weight, int kMode>
constexpr ConvKernels::Launchers conv_launchers_of_mode() {
  if constexpr (is_conv_compiled(Weight::kType, kMode)) {
    return conv_row_launchers<Element, Weight, kMode>(
        std::make_integer_sequence<int, kNumConvTileConfigs>());
  } else {
    return {};
  }
}

template <typename Element, typename Weight, int... kModes>
const ConvKernels::Launchers& conv_mode_launchers(int mode, std::integer_sequence<int, kModes...>) {
  static constexpr ConvKernels::Launchers kTable[] = {
      conv_launchers_of_mode<Element, Weight, kModes>()...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const ConvKernels::Launchers& ConvKernels::launchers(int mode) {
  return conv_mode_launchers<typename CutlassElement<kElement>::Type, WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumConvModes>());
}

}  // namespace mixed_gemm
