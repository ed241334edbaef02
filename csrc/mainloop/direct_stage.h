// The stages of the direct mainloop, whose operands are both rows of bytes along K.
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

constexpr int kScaledTileK = 128;  // one line of shared memory

constexpr int scaled_stage_bytes(const TileConfig& t) { return (t.m + t.n) * kScaledTileK; }
constexpr int scaled_smem_bytes(const TileConfig& t) {
  return t.stages * scaled_stage_bytes(t) + kMaxWarps * 4;
}

}  // namespace mixed_gemm
