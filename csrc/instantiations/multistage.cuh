// Body of an instantiation file: every tile for the listed scale modes.
#pragma once
#include "instantiations/multistage.h"
#include "kernel/launch.cuh"

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

}  // namespace mixed_gemm
