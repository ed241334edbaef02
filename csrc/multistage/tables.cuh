// Body of a multistage instantiation file: every tile for a part of the scale modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "multistage/launch.cuh"
#include "multistage/launchers.h"

namespace mixed_gemm {

// The launchers of a mode: null for a mode of the other part, or one that is not compiled.
template <typename Element, typename Weight, int kMode, bool kSeveralRows>
constexpr MultistageKernels::Launchers part_launchers() {
  constexpr bool kOfPart = (scale_rows(kMultistageModes[kMode]) > 1) == kSeveralRows;
  if constexpr (kOfPart && is_multistage_compiled(Weight::kType, kMode)) {
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
      part_launchers<Element, Weight, kModes, kSeveralRows>()...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight, bool kSeveralRows>
const MultistageKernels::Launchers& MultistageKernels::launchers_of_part(int mode) {
  return launchers_of_modes<typename CutlassElement<kElement>::Type, WeightOf<kWeight>,
                            kSeveralRows>(mode,
                                          std::make_integer_sequence<int, kNumMultistageModes>());
}

}  // namespace mixed_gemm
