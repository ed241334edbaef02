// Body of an instantiation file: every row of a family for the listed scale modes.
#pragma once
#include "instantiations/gemm_tables.h"
#include "kernel/launch.cuh"
#include "skinny/skinny_launch.cuh"

namespace mixed_gemm {

template <ElementType kElement>
struct CutlassElement;
template <>
struct CutlassElement<ElementType::kFloat16> {
  using Type = cutlass::half_t;
};
template <>
struct CutlassElement<ElementType::kBFloat16> {
  using Type = cutlass::bfloat16_t;
};

template <ElementType kElement, int kBits, ScaleMode kMode>
const TileLaunchers& tile_launchers() {
  static constexpr TileLaunchers kTable =
      kLaunchers<typename CutlassElement<kElement>::Type, kBits, kMode>;
  return kTable;
}

template <ElementType kElement, int kBits, ScaleMode kMode>
const SkinnyLaunchers& skinny_launchers() {
  using Element = typename CutlassElement<kElement>::Type;
  static constexpr SkinnyLaunchers kTable = skinny_row_launchers<Element, kBits, kMode>(
      std::make_integer_sequence<int, kNumSkinnyConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
