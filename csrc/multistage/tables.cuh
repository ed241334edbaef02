// Body of a multistage instantiation file: every tile for the listed scale modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "multistage/launch.cuh"
#include "multistage/launchers.h"

namespace mixed_gemm {

template <ElementType kElement, int kBits, ScaleMode kMode>
const TileLaunchers& tile_launchers() {
  static constexpr TileLaunchers kTable =
      kLaunchers<typename CutlassElement<kElement>::Type, kBits, kMode>;
  return kTable;
}

}  // namespace mixed_gemm
