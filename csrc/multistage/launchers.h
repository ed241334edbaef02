// The launcher of each row of kTileConfigs as plain function pointers, by [element][bits][mode].
#pragma once
#include <array>

#include "grid/gemm_launch.h"
#include "mainloop/multistage_stage.h"
#include "multistage/config.h"

namespace mixed_gemm {

using TileLaunchers = std::array<GemmLaunch, kNumTileConfigs>;

// How an instantiation file offers its kernels. ElementType instead of CUTLASS's types: what calls
// this compiles without CUTLASS.
template <ElementType kElement, int kBits, ScaleMode kMode>
const TileLaunchers& tile_launchers();

const TileLaunchers& multistage_launchers(ElementType element, int bits, ScaleMode mode);

}  // namespace mixed_gemm
