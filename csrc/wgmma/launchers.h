// The launcher of each row of kWgmmaTileConfigs as plain function pointers.
#pragma once
#include <array>

#include "core/build.h"
#include "grid/gemm_launch.h"
#include "wgmma/config.h"

namespace mixed_gemm {

// How an instantiation file offers its kernels. ElementType instead of CUTLASS's types: what calls
// this compiles without CUTLASS.
struct WgmmaKernels {
  using Launchers = std::array<GemmLaunch, kNumWgmmaTileConfigs>;
  // None in builds without sm_90a, where why_not lets nobody come here.
  static constexpr bool has(WeightType weight, int mode) {
    return this_build().wgmma && is_wgmma_compiled(weight, mode);
  }
  static constexpr int kModes = kNumWgmmaModes;

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const WgmmaKernels::Launchers& wgmma_launchers(ElementType element, WeightType weight, int mode);

}  // namespace mixed_gemm
