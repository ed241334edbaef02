// Body of a skinny instantiation file: every row for all modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "skinny/launch.cuh"
#include "skinny/launchers.h"

namespace mixed_gemm {

template <typename Element, typename Weight, int... kModes>
const SkinnyKernels::Launchers& skinny_mode_launchers(int mode,
                                                      std::integer_sequence<int, kModes...>) {
  static constexpr SkinnyKernels::Launchers kTable[] = {
      skinny_row_launchers<Element, Weight, kModes>(
          std::make_integer_sequence<int, kNumSkinnyConfigs>())...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const SkinnyKernels::Launchers& SkinnyKernels::launchers(int mode) {
  return skinny_mode_launchers<typename CutlassElement<kElement>::Type, WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumSkinnyModes>());
}

}  // namespace mixed_gemm
