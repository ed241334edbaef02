// The compiled scaled GEMMs as plain function pointers.
#pragma once
#include <array>

#include "core/scaled_tile_config.h"
#include "grid/scaled_mm_args.h"

namespace mixed_gemm {

using WgmmaInt8Launchers = std::array<ScaledMmLaunch, kNumWgmmaInt8TileConfigs>;
using ScaledLaunchers = std::array<ScaledMmLaunch, kNumScaledTileConfigs>;

const ScaledLaunchers& int8_scaled_launchers();
int launch_int8_scaled_reduce(const ScaledReduceArgs& args);
// Present where MIXED_GEMM_WITH_WGMMA is defined.
const WgmmaInt8Launchers& wgmma_int8_launchers();
// Present where MIXED_GEMM_WITH_FP8 is defined.
const ScaledLaunchers& fp8_scaled_launchers();
int launch_fp8_scaled_reduce(const ScaledReduceArgs& args);

}  // namespace mixed_gemm
