// Body of a multistage instantiation file: every tile for the listed scale modes.
#pragma once
#include "instantiations/cutlass_element.cuh"
#include "instantiations/gemm_tables.h"
#include "kernel/launch.cuh"

namespace mixed_gemm {

template <ElementType kElement, int kBits, ScaleMode kMode>
const TileLaunchers& tile_launchers() {
  static constexpr TileLaunchers kTable =
      kLaunchers<typename CutlassElement<kElement>::Type, kBits, kMode>;
  return kTable;
}

}  // namespace mixed_gemm
