// The scaled GEMMs by mma.sync as plain function pointers.
#pragma once
#include <array>

#include "grid/scaled_reduce.h"
#include "scaled/config.h"

namespace mixed_gemm {

using ScaledLaunchers = std::array<ScaledMmLaunch, kNumScaledTileConfigs>;

const ScaledLaunchers& int8_scaled_launchers();
// Present where MIXED_GEMM_WITH_FP8 is defined.
const ScaledLaunchers& fp8_scaled_launchers();

}  // namespace mixed_gemm
