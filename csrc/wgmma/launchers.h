// The launcher of each row of kWgmmaTileConfigs as plain function pointers, by
// [element][bits][mode].
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "wgmma/config.h"

namespace mixed_gemm {

using WgmmaLaunchers = std::array<GemmLaunch, kNumWgmmaTileConfigs>;

// How an instantiation file offers its kernels. ElementType instead of CUTLASS's types: what calls
// this compiles without CUTLASS.
template <ElementType kElement, int kBits, WgmmaMode kMode>
const WgmmaLaunchers& wgmma_launchers();

// No kernels in builds without sm_90a, where why_not lets nobody come here.
const WgmmaLaunchers& wgmma_launchers(ElementType element, int bits, WgmmaMode mode);

}  // namespace mixed_gemm
