// The compiled scaled GEMMs as plain function pointers.
#pragma once
#include <array>

#include "core/scaled_tile_config.h"
#include "kernel/scaled_mm_args.h"

namespace mixed_gemm {

using ScaledLaunchers = std::array<ScaledMmLaunch, kNumScaledTileConfigs>;
using ScaledReduce = int (*)(const ScaledReduceArgs&);

const ScaledLaunchers& int8_scaled_launchers(EpilogueKind kind);
ScaledReduce int8_scaled_reduce(EpilogueKind kind);
// Present where MIXED_GEMM_WITH_FP8 is defined.
const ScaledLaunchers& fp8_scaled_launchers(EpilogueKind kind);
ScaledReduce fp8_scaled_reduce(EpilogueKind kind);

}  // namespace mixed_gemm
