// The scaled GEMMs by wgmma as plain function pointers.
#pragma once
#include <array>

#include "grid/scaled_reduce.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

using WgmmaInt8Launchers = std::array<ScaledMmLaunch, kNumWgmmaInt8TileConfigs>;

// The launcher of each row of kWgmmaInt8TileConfigs. Present where MIXED_GEMM_WITH_WGMMA is
// defined.
const WgmmaInt8Launchers& wgmma_int8_launchers();

}  // namespace mixed_gemm
