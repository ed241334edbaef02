#include <utility>

#include "skinny/launchers.h"

namespace mixed_gemm {

namespace {

using Modes = std::array<const SkinnyLaunchers& (*)(), kNumSkinnyModes>;

template <ElementType kElement, int kBits, int... kModes>
constexpr Modes all_modes(std::integer_sequence<int, kModes...>) {
  return {skinny_launchers<kElement, kBits, static_cast<SkinnyMode>(kModes)>...};
}

template <ElementType kElement, int kBits>
constexpr Modes kSkinny =
    all_modes<kElement, kBits>(std::make_integer_sequence<int, kNumSkinnyModes>());

}  // namespace

const SkinnyLaunchers& skinny_launchers(ElementType element, int bits, SkinnyMode mode) {
  static constexpr Modes kTable[] = {
      kSkinny<ElementType::kFloat16, 4>, kSkinny<ElementType::kFloat16, 8>,
      kSkinny<ElementType::kBFloat16, 4>, kSkinny<ElementType::kBFloat16, 8>};
  return kTable[launcher_row(element, bits)][static_cast<int>(mode)]();
}

}  // namespace mixed_gemm
