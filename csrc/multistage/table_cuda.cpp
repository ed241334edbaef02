#include "multistage/launchers.h"

namespace mixed_gemm {

namespace {

using Modes = std::array<const TileLaunchers& (*)(), kNumScaleModes>;

template <ElementType kElement, int kBits>
constexpr Modes kTiles = {tile_launchers<kElement, kBits, ScaleMode::kPerChannel>,
                          tile_launchers<kElement, kBits, ScaleMode::kCoarse>,
                          tile_launchers<kElement, kBits, ScaleMode::kCoarseZero>,
                          tile_launchers<kElement, kBits, ScaleMode::kHalf>,
                          tile_launchers<kElement, kBits, ScaleMode::kHalfZero>,
                          tile_launchers<kElement, kBits, ScaleMode::kFine>,
                          tile_launchers<kElement, kBits, ScaleMode::kFineZero>};

}  // namespace

const TileLaunchers& multistage_launchers(ElementType element, int bits, ScaleMode mode) {
  static constexpr Modes kTable[] = {
      kTiles<ElementType::kFloat16, 4>, kTiles<ElementType::kFloat16, 8>,
      kTiles<ElementType::kBFloat16, 4>, kTiles<ElementType::kBFloat16, 8>};
  return kTable[launcher_row(element, bits)][static_cast<int>(mode)]();
}

}  // namespace mixed_gemm
