// The launcher of each row of kSkinnyConfigs as plain function pointers.
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "skinny/config.h"

namespace mixed_gemm {

// How an instantiation file offers its kernels. ElementType instead of CUTLASS's types: what calls
// this compiles without CUTLASS.
struct SkinnyKernels {
  using Launchers = std::array<GemmLaunch, kNumSkinnyConfigs>;
  static constexpr bool has(WeightType weight) { return weight_info(weight).is_integer; }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const SkinnyKernels::Launchers& skinny_launchers(ElementType element, WeightType weight,
                                                 SkinnyMode mode);

}  // namespace mixed_gemm
