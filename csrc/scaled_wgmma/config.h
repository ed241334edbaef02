// THE list of compiled tiles of the scaled GEMMs by wgmma (int8 x int8, sm_90a); warp_m, warp_n: of
// a warpgroup, whose instruction has 64 rows and up to 256 columns.
#pragma once
#include <iterator>

#include "core/quant_scheme.h"
#include "hopper/stage.h"
#include "mainloop/direct_stage.h"

namespace mixed_gemm {

constexpr int wgmma_int8_smem_bytes(const TileConfig& t) {
  const int vectors = 2 * (12 * t.n + 8 * t.m);  // of two tiles: wgmma_scaled_output.cuh
  const int aligned = static_cast<int>(round_up(vectors, kStageAlignment));
  return t.stages * scaled_stage_bytes(t) + aligned + kStageAlignment;  // barriers: the last term
}

constexpr TileConfig kWgmmaInt8TileConfigs[] = {
    Tile(64, 64).warp(64, 32).stages(6).blocks(2),
    Tile(64, 128).warp(64, 64).stages(4).blocks(2),
    Tile(128, 128).warp(64, 128).stages(6).blocks(1),
    Tile(128, 256).warp(64, 256).stages(4).blocks(1),
};
constexpr int kNumWgmmaInt8TileConfigs = std::size(kWgmmaInt8TileConfigs);

}  // namespace mixed_gemm
