// Body of a multistage instantiation file: every tile for a part of the scale modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "multistage/launch.cuh"
#include "multistage/launchers.h"

namespace mixed_gemm {

// None of a mode of the other part.
template <typename Element, typename Weight, ScaleMode kMode, bool kSeveralRows>
constexpr MultistageKernels::Launchers part_launchers() {
  if constexpr ((scale_rows(kMode) > 1) == kSeveralRows) {
    return row_launchers<Element, Weight, kMode>(
        std::make_integer_sequence<int, kNumTileConfigs>());
  } else {
    return {};
  }
}

template <typename Element, typename Weight, bool kSeveralRows, int... kModes>
const MultistageKernels::Launchers& launchers_of_modes(int mode,
                                                       std::integer_sequence<int, kModes...>) {
  static constexpr MultistageKernels::Launchers kTable[] = {
      part_launchers<Element, Weight, static_cast<ScaleMode>(kModes), kSeveralRows>()...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight, bool kSeveralRows>
const MultistageKernels::Launchers& MultistageKernels::launchers_of_part(int mode) {
  return launchers_of_modes<typename CutlassElement<kElement>::Type, WeightOf<kWeight>,
                            kSeveralRows>(mode, std::make_integer_sequence<int, kNumScaleModes>());
}

}  // namespace mixed_gemm
