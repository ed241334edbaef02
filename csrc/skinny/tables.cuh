// Body of a skinny instantiation file: every row for the listed modes.
#pragma once
#include "dequant/cutlass_element.cuh"
#include "multistage/launchers.h"
#include "skinny/launch.cuh"

namespace mixed_gemm {

template <ElementType kElement, int kBits, SkinnyMode kMode>
const SkinnyLaunchers& skinny_launchers() {
  using Element = typename CutlassElement<kElement>::Type;
  static constexpr SkinnyLaunchers kTable = skinny_row_launchers<Element, kBits, kMode>(
      std::make_integer_sequence<int, kNumSkinnyConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
