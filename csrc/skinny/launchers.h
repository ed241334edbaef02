// The launcher of each row of kSkinnyConfigs as plain function pointers.
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "skinny/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer. It takes ElementType instead of CUTLASS's types, so
// that its callers compile without CUTLASS.
struct SkinnyKernels {
  using Launchers = std::array<GemmLaunch, kNumSkinnyConfigs>;
  static constexpr int kModes = kNumSkinnyModes;
  static constexpr bool has(WeightType weight, int mode) {
    for (const SkinnyConfig& row : kSkinnyConfigs) {
      if (is_skinny_compiled(row, weight, mode)) return true;
    }
    return false;
  }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const SkinnyKernels::Launchers& skinny_launchers(ElementType element, WeightType weight, int mode);

}  // namespace mixed_gemm
