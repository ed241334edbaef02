// Body of a skinny instantiation file: every row for the listed modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "skinny/launch.cuh"
#include "skinny/launchers.h"

namespace mixed_gemm {

template <ElementType kElement, int kBits, SkinnyMode kMode>
const SkinnyLaunchers& skinny_launchers() {
  static constexpr SkinnyLaunchers kTable =
      skinny_row_launchers<typename CutlassElement<kElement>::Type, kBits, kMode>(
          std::make_integer_sequence<int, kNumSkinnyConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
