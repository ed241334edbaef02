// The skinny scaled GEMMs as plain function pointers, one for each row of kScaledSkinnyConfigs.
#pragma once
#include <array>

#include "grid/scaled_reduce.h"
#include "scaled_skinny/config.h"

namespace mixed_gemm {

using ScaledSkinnyLaunchers = std::array<ScaledMmLaunch, kNumScaledSkinnyConfigs>;

const ScaledSkinnyLaunchers& int8_skinny_launchers();
// Present where MIXED_GEMM_WITH_FP8 is defined.
const ScaledSkinnyLaunchers& fp8_skinny_launchers();

}  // namespace mixed_gemm
