// The launcher of each row of kTileConfigs as plain function pointers.
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "multistage/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer: modes with one row of scales a k-tile and modes with
// several are in files of their own. It takes ElementType instead of CUTLASS's types, so that its
// callers compile without CUTLASS.
struct MultistageKernels {
  using Launchers = std::array<GemmLaunch, kNumTileConfigs>;
  static constexpr bool has(WeightType weight, int mode) {
    return is_multistage_compiled(weight, mode);
  }
  static constexpr int kModes = kNumMultistageModes;

  template <ElementType kElement, WeightType kWeight, bool kSeveralRows>
  static const Launchers& launchers_of_part(int mode);

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode) {
    return scale_rows(kMultistageModes[mode]) > 1
               ? launchers_of_part<kElement, kWeight, true>(mode)
               : launchers_of_part<kElement, kWeight, false>(mode);
  }
};

const MultistageKernels::Launchers& multistage_launchers(ElementType element, WeightType weight,
                                                         int mode);

}  // namespace mixed_gemm
