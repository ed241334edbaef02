#include <array>

#include "instantiations/multistage.h"

namespace mixed_gemm {
namespace {

using Modes = std::array<const TileLaunchers& (*)(), kNumScaleModes>;

template <ElementType kElement, int kBits>
constexpr Modes kModes = {tile_launchers<kElement, kBits, ScaleMode::kPerChannel>,
                          tile_launchers<kElement, kBits, ScaleMode::kCoarse>,
                          tile_launchers<kElement, kBits, ScaleMode::kCoarseZero>,
                          tile_launchers<kElement, kBits, ScaleMode::kFine>,
                          tile_launchers<kElement, kBits, ScaleMode::kFineZero>};

}  // namespace

const TileLaunchers& multistage_launchers(ElementType element, int bits, ScaleMode mode) {
  static constexpr std::array<Modes, 4> kTable = {
      kModes<ElementType::kFloat16, 4>, kModes<ElementType::kFloat16, 8>,
      kModes<ElementType::kBFloat16, 4>, kModes<ElementType::kBFloat16, 8>};
  return kTable[2 * static_cast<int>(element) + (bits == 8)][static_cast<int>(mode)]();
}

}  // namespace mixed_gemm
