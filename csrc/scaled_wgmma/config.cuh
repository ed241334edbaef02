// A compiled scaled GEMM by wgmma as a type: its operands and a row of the table of tiles.
#pragma once
#include "hopper/warp_roles.cuh"
#include "hopper/warpgroup_mma.cuh"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

// Sums of int8 are exact, so they stay where wgmma leaves them.
struct WgmmaInt8 {
  using Sum = int32_t;
  static constexpr bool kPromotes = false, kBlocks = false;
  static constexpr int columns(const TileConfig& t) { return t.warp_n; }
  template <int kColumns>
  using Mma = WarpgroupInt8Mma<kColumns>;
};

// Sums of float8 e4m3 are added to fp32 ones after each line of K.
struct WgmmaFp8 {
  using Sum = float;
  static constexpr bool kPromotes = true, kBlocks = false;
  static constexpr int columns(const TileConfig& t) { return wgmma_fp8_columns(t); }
  template <int kColumns>
  using Mma = WarpgroupFp8Mma<kColumns>;
};

// Sums of float8 that are multiplied with the scales of their blocks on the way.
struct WgmmaFp8Blocks : WgmmaFp8 {
  static constexpr bool kBlocks = true;
};

template <typename Operand_, int kRow>
struct WgmmaScaledConfig : WarpRoles<kWgmmaScaledTileConfigs[kRow].min_blocks> {
  using Operand = Operand_;
  using Sum = typename Operand::Sum;
  static constexpr TileConfig kTile = kWgmmaScaledTileConfigs[kRow];
  static constexpr int kStages = kTile.stages;
  static constexpr int kRowTiles = kTile.warp_m / 64;           // of a warpgroup
  static constexpr int kColumns = Operand::columns(kTile);      // of the instruction
  static constexpr int kColumnParts = kTile.warp_n / kColumns;  // of a warpgroup
  static constexpr int kSumsPerTile = kTile.warp_n / 2;         // of a thread
  static constexpr int kSums = kRowTiles * kSumsPerTile;
  static constexpr int kTokenBytes = kTile.m * kScaledTileK;
  static constexpr int kStageBytes = scaled_stage_bytes(kTile);
  // Warpgroups above each other in the tile.
  static constexpr int kGroupsM = has_few_rows(kTile) ? 1 : kTile.m / kTile.warp_m;
  static_assert(kGroupsM * (kTile.n / kTile.warp_n) == WgmmaScaledConfig::kMultipliers,
                "a part of the tile for each warpgroup");
  static_assert(kTile.warp_m * kScaledTileK <= kStageBytes, "an instruction reads of one stage");
  static_assert(kStageBytes % 1024 == 0, "period of TMA's swizzle");
  static_assert(kColumnParts * kColumns == kTile.warp_n, "whole instructions");
  static_assert(!Operand::kBlocks || kScaleBlock % kColumns == 0,
                "the columns of an instruction have one scale");

  // The first row of a warpgroup's part of the tile.
  static __device__ int group_row(int group) { return group % kGroupsM * kTile.warp_m; }
  static __device__ int group_column(int group) { return group / kGroupsM * kTile.warp_n; }
};

}  // namespace mixed_gemm
