#include "wgmma/launchers.h"

namespace mixed_gemm {

#if defined(MIXED_GEMM_WITH_WGMMA)
namespace {

using Modes = std::array<const WgmmaLaunchers& (*)(), kNumWgmmaModes>;

template <ElementType kElement, int kBits>
constexpr Modes kWgmma = {wgmma_launchers<kElement, kBits, WgmmaMode::kPerChannel>,
                          wgmma_launchers<kElement, kBits, WgmmaMode::kScaled>,
                          wgmma_launchers<kElement, kBits, WgmmaMode::kScaledZero>};

}  // namespace
#endif

const WgmmaLaunchers& wgmma_launchers([[maybe_unused]] ElementType element,
                                      [[maybe_unused]] int bits, [[maybe_unused]] WgmmaMode mode) {
#if defined(MIXED_GEMM_WITH_WGMMA)
  static constexpr Modes kTable[] = {
      kWgmma<ElementType::kFloat16, 4>, kWgmma<ElementType::kFloat16, 8>,
      kWgmma<ElementType::kBFloat16, 4>, kWgmma<ElementType::kBFloat16, 8>};
  return kTable[launcher_row(element, bits)][static_cast<int>(mode)]();
#else
  static constexpr WgmmaLaunchers kNone = {};  // why_not lets nobody come here
  return kNone;
#endif
}

}  // namespace mixed_gemm
