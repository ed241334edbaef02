// Scale modes in the multistage mainloop, and the shared memory that its stages take. why_not and
// the cost models read it at run time; the kernels assert that they use just this.
#pragma once
#include <cstdint>

#include "core/tile.h"
#include "mainloop/scale_mode.h"

namespace mixed_gemm {

// The mode of the kernel that runs for `mode`. Only tiles of 16 tokens have one for halves: in
// others scales are a smaller part of the work, and it would take half as long again to compile.
constexpr ScaleMode compiled_mode(const TileConfig& t, ScaleMode mode) {
  if (!t.halves && mode.row_k == kTileK / 2) mode.row_k = kMmaK;
  return mode;
}

// Whether scales meet fp32 sums (mainloop/group_scaling.cuh), not weights. With 32 tokens there are
// as many sums as weights, and their registers cost a resident block: 4 to 14 % slower.
// Convolutions, which have slices of K, keep one group a k-tile.
constexpr bool scales_sums(const TileConfig& t, const ScaleMode& mode) {
  return t.scales_sums && mode.row_k == kTileK;
}
// Whether rows of zero points lie beside the rows of scales. Where sums are scaled they take
// another way (mainloop/zero_products.cuh).
constexpr bool stages_zeros(const TileConfig& t, const ScaleMode& mode) {
  return mode.zeros && !scales_sums(t, mode);
}

// Bytes of one pipeline stage: A, packed B, scale rows, zero rows. The mainloop asserts that it
// uses just these.
constexpr int stage_bytes(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  return t.m * kTileK * 2 + t.n * kTileK * bits_of(weight) / 8 +
         scale_rows(compiled_mode(t, mode)) * t.n * scale_bytes(mode.type) *
             (stages_zeros(t, mode) ? 2 : 1);
}
constexpr int smem_bytes(const TileConfig& t, WeightType weight, const ScaleMode& mode) {
  return t.k_warps * num_stages(t, weight) * stage_bytes(t, weight, mode) + kMaxWarps * 4;
}

}  // namespace mixed_gemm
