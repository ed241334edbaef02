// The launcher of each row of kWgmmaTileConfigs as plain function pointers.
#pragma once
#include <array>

#include "core/build.h"
#include "grid/gemm_launch.h"
#include "wgmma/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer. It takes ElementType instead of CUTLASS's types, so
// that its callers compile without CUTLASS.
struct WgmmaKernels {
  using Launchers = std::array<GemmLaunch, kNumWgmmaTileConfigs>;
  // There are none in builds without sm_90a, where why_not lets nobody come here.
  static constexpr bool has(WeightType weight, int mode) {
    return this_build().wgmma && is_wgmma_compiled(weight, mode);
  }
  static constexpr int kModes = kNumWgmmaModes;

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const WgmmaKernels::Launchers& wgmma_launchers(ElementType element, WeightType weight, int mode);

}  // namespace mixed_gemm
