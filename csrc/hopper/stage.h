// Numbers that every kernel fed by TMA shares.
#pragma once

namespace mixed_gemm {

constexpr int kWgmmaMultipliers = 2;  // warpgroups of a block that multiply

// Stages, and k-tiles in them, begin on 1024 bytes, the period of TMA's 128-byte swizzle.
constexpr int kStageAlignment = 1024;

// The shared memory that each of so many blocks on an SM can have: an SM has 228 KiB, of which each
// block takes 1 KiB for the system.
constexpr int hopper_block_bytes(int blocks) { return 228 * 1024 / blocks - 1024; }

}  // namespace mixed_gemm
