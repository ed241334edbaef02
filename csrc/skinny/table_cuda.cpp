#include "skinny/launchers.h"

namespace mixed_gemm {

namespace {

using Modes = std::array<const SkinnyLaunchers& (*)(), kNumSkinnyModes>;

template <ElementType kElement, int kBits>
constexpr Modes kSkinny = {skinny_launchers<kElement, kBits, SkinnyMode::kPerChannel>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kCoarse>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kCoarseZero>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kHalf>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kHalfZero>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kQuarter>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kQuarterZero>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kBlock>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kBlockZero>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kFine>,
                           skinny_launchers<kElement, kBits, SkinnyMode::kFineZero>};

}  // namespace

const SkinnyLaunchers& skinny_launchers(ElementType element, int bits, SkinnyMode mode) {
  static constexpr Modes kTable[] = {
      kSkinny<ElementType::kFloat16, 4>, kSkinny<ElementType::kFloat16, 8>,
      kSkinny<ElementType::kBFloat16, 4>, kSkinny<ElementType::kBFloat16, 8>};
  return kTable[launcher_row(element, bits)][static_cast<int>(mode)]();
}

}  // namespace mixed_gemm
