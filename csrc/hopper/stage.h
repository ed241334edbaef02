// What every kernel that the copy engine feeds has in common.
#pragma once

namespace mixed_gemm {

constexpr int kWgmmaMultipliers = 2;  // warpgroups of a block that multiply

// Stages, and k-tiles in them, begin on 1024 bytes, the period of the copy engine's permutation.
constexpr int kStageAlignment = 1024;

}  // namespace mixed_gemm
