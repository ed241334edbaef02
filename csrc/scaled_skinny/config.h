// THE list of compiled skinny kernels of the scaled GEMMs: up to 8 * m_tiles tokens by 16 * n_tiles
// columns for a block, whose warps share out K.
#pragma once
#include <cstdint>
#include <iterator>

namespace mixed_gemm {

struct ScaledSkinnyConfig {
  int m_tiles, n_tiles, warps;
  int resident_warps;  // that an SM is to hold: caps the registers
};
constexpr ScaledSkinnyConfig scaled_skinny_row(int tokens, int columns, int warps,
                                               int resident_warps) {
  return {tokens / 8, columns / 16, warps, resident_warps};
}

// Others were tried on an H100, four weights from 4096 x 4096 to 28672 x 4096, over the first row's
// times: 16 warps took 0.99 to 1.03, 32 columns 0.95 to 1.09 (float8 1.22 to 1.36). 32 tokens were
// behind wgmma.
constexpr ScaledSkinnyConfig kScaledSkinnyConfigs[] = {
    scaled_skinny_row(/*tokens=*/8, /*columns=*/16, /*warps=*/8, /*resident_warps=*/32),
    scaled_skinny_row(16, 16, 8, 24),
};
constexpr int kNumScaledSkinnyConfigs = std::size(kScaledSkinnyConfigs);

// In an iteration of a warp the 4 lanes of a quad read 16 bytes of a row next to each other, twice,
// so that a row is read in whole lines of 128 bytes.
constexpr int kScaledSkinnyVector = 16;
constexpr int kScaledSkinnyChunk = 4 * kScaledSkinnyVector;
constexpr int kScaledSkinnyChunks = 2;
constexpr int kScaledSkinnyK = kScaledSkinnyChunks * kScaledSkinnyChunk;

constexpr int scaled_skinny_tokens(const ScaledSkinnyConfig& t) { return 8 * t.m_tiles; }
constexpr int scaled_skinny_columns(const ScaledSkinnyConfig& t) { return 16 * t.n_tiles; }

}  // namespace mixed_gemm
