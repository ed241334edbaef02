// The scaled GEMMs by mma.sync as plain function pointers.
#pragma once
#include <array>

#include "grid/scaled_mm_args.h"
#include "scaled/config.h"

namespace mixed_gemm {

using ScaledLaunchers = std::array<ScaledMmLaunch, kNumScaledTileConfigs>;

const ScaledLaunchers& int8_scaled_launchers();
int launch_int8_scaled_reduce(const ScaledReduceArgs& args);
// Present where MIXED_GEMM_WITH_FP8 is defined.
const ScaledLaunchers& fp8_scaled_launchers();
int launch_fp8_scaled_reduce(const ScaledReduceArgs& args);

}  // namespace mixed_gemm
