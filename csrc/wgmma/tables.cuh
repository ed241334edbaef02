// Body of a wgmma instantiation file: every tile for all modes. Compiled for sm_90a alone.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "wgmma/launch.cuh"
#include "wgmma/launchers.h"

namespace mixed_gemm {

template <ElementType kElement, int kBits, WgmmaMode kMode>
const WgmmaLaunchers& wgmma_launchers() {
  using Element = typename CutlassElement<kElement>::Type;
  static constexpr WgmmaLaunchers kTable = wgmma_row_launchers<Element, kBits, kMode>(
      std::make_integer_sequence<int, kNumWgmmaTileConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
