// The scaled GEMMs by wgmma as plain function pointers, one for each row of
// kWgmmaScaledTileConfigs. Present where MIXED_GEMM_WITH_WGMMA is defined.
#pragma once
#include <array>

#include "grid/scaled_reduce.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

using WgmmaScaledLaunchers = std::array<ScaledMmLaunch, kNumWgmmaScaledTileConfigs>;

const WgmmaScaledLaunchers& wgmma_int8_launchers();
const WgmmaScaledLaunchers& wgmma_fp8_launchers();
const WgmmaScaledLaunchers& wgmma_fp8_blocks_launchers();  // with scales of blocks

}  // namespace mixed_gemm
