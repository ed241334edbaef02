// Numbers that every kernel fed by TMA shares.
#pragma once

namespace mixed_gemm {

constexpr int kWgmmaMultipliers = 2;  // warpgroups of a block that multiply

// Stages, and k-tiles in them, begin on 1024 bytes, the period of TMA's 128-byte swizzle.
constexpr int kStageAlignment = 1024;

}  // namespace mixed_gemm
