#include "multistage/launchers.h"

#include <array>

namespace mixed_gemm {
namespace {

template <typename Launchers, int kModes = kNumScaleModes>
using Modes = std::array<const Launchers& (*)(), kModes>;

template <ElementType kElement, int kBits>
constexpr Modes<TileLaunchers> kTiles = {tile_launchers<kElement, kBits, ScaleMode::kPerChannel>,
                                         tile_launchers<kElement, kBits, ScaleMode::kCoarse>,
                                         tile_launchers<kElement, kBits, ScaleMode::kCoarseZero>,
                                         tile_launchers<kElement, kBits, ScaleMode::kHalf>,
                                         tile_launchers<kElement, kBits, ScaleMode::kHalfZero>,
                                         tile_launchers<kElement, kBits, ScaleMode::kFine>,
                                         tile_launchers<kElement, kBits, ScaleMode::kFineZero>};

template <ElementType kElement, int kBits>
constexpr Modes<SkinnyLaunchers, kNumSkinnyModes> kSkinny = {
    skinny_launchers<kElement, kBits, SkinnyMode::kPerChannel>,
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

#if defined(MIXED_GEMM_WITH_WGMMA)
template <ElementType kElement, int kBits>
constexpr Modes<WgmmaLaunchers, kNumWgmmaModes> kWgmma = {
    wgmma_launchers<kElement, kBits, WgmmaMode::kPerChannel>,
    wgmma_launchers<kElement, kBits, WgmmaMode::kScaled>,
    wgmma_launchers<kElement, kBits, WgmmaMode::kScaledZero>};
#endif

int row_of(ElementType element, int bits) { return 2 * static_cast<int>(element) + (bits == 8); }

}  // namespace

const TileLaunchers& multistage_launchers(ElementType element, int bits, ScaleMode mode) {
  static constexpr Modes<TileLaunchers> kTable[] = {
      kTiles<ElementType::kFloat16, 4>, kTiles<ElementType::kFloat16, 8>,
      kTiles<ElementType::kBFloat16, 4>, kTiles<ElementType::kBFloat16, 8>};
  return kTable[row_of(element, bits)][static_cast<int>(mode)]();
}

const SkinnyLaunchers& skinny_launchers(ElementType element, int bits, SkinnyMode mode) {
  static constexpr Modes<SkinnyLaunchers, kNumSkinnyModes> kTable[] = {
      kSkinny<ElementType::kFloat16, 4>, kSkinny<ElementType::kFloat16, 8>,
      kSkinny<ElementType::kBFloat16, 4>, kSkinny<ElementType::kBFloat16, 8>};
  return kTable[row_of(element, bits)][static_cast<int>(mode)]();
}

const WgmmaLaunchers& wgmma_launchers(ElementType element, int bits, WgmmaMode mode) {
#if defined(MIXED_GEMM_WITH_WGMMA)
  static constexpr Modes<WgmmaLaunchers, kNumWgmmaModes> kTable[] = {
      kWgmma<ElementType::kFloat16, 4>, kWgmma<ElementType::kFloat16, 8>,
      kWgmma<ElementType::kBFloat16, 4>, kWgmma<ElementType::kBFloat16, 8>};
  return kTable[row_of(element, bits)][static_cast<int>(mode)]();
#else
  static constexpr WgmmaLaunchers kNone = {};  // why_not_candidate lets nobody come here
  return kNone;
#endif
}

}  // namespace mixed_gemm
