// Body of a wgmma instantiation file: every tile for all modes. Compiled for sm_90a alone.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "wgmma/launch.cuh"
#include "wgmma/launchers.h"

namespace mixed_gemm {

// The launchers of a mode: null where it is not compiled.
template <typename Element, typename Weight, int kMode>
constexpr WgmmaKernels::Launchers wgmma_launchers_of_mode() {
  if constexpr (is_wgmma_compiled(Weight::kType, kMode)) {
    return wgmma_row_launchers<Element, Weight, kMode>(
        std::make_integer_sequence<int, kNumWgmmaTileConfigs>());
  } else {
    return {};
  }
}

template <typename Element, typename Weight, int... kModes>
const WgmmaKernels::Launchers& wgmma_mode_launchers(int mode,
                                                    std::integer_sequence<int, kModes...>) {
  static constexpr WgmmaKernels::Launchers kTable[] = {
      wgmma_launchers_of_mode<Element, Weight, kModes>()...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const WgmmaKernels::Launchers& WgmmaKernels::launchers(int mode) {
  return wgmma_mode_launchers<typename CutlassElement<kElement>::Type, WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumWgmmaModes>());
}

}  // namespace mixed_gemm
