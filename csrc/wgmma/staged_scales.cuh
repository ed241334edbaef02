// Rows of scales and zero points in the stages of k-tiles: their groups, and where a lane finds the
// values of its columns.
#pragma once
#include "cutlass/fast_math.h"
#include "dequant/column_pair.h"
#include "hopper/warpgroup_mma.cuh"
#include "wgmma/staged_rows.h"

namespace mixed_gemm {

struct StagedScales {
  cutlass::FastDivmod steps_per_group;
  StagedRows rows;
  ZeroFolding folding;

  StagedScales() = default;
  StagedScales(int64_t group_size, int64_t k, ZeroFolding zero_folding)
      : steps_per_group(static_cast<int>(ceil_div(group_size, kMmaK))),
        rows(group_size, k),
        folding(zero_folding) {}

  // The group of row `row` of k-tile `tile`.
  __device__ int group(int tile, int row) const {
    return steps_per_group.div(tile * StagedRows::kSteps + row * rows.steps_per_row);
  }
  // The starts of groups in a run of k-tiles from `tile` on.
  __device__ GroupStarts starts(int tile) const {
    return {rows, tile, [this](int first) { return group(first, 0); }};
  }
};

// Columns g and g + 8 of a row come in one register of lanes (g, q), from a transposed matrix of
// 8 x 8 whose even rows are the first 8 columns and whose odd ones are the other 8: one LDSM for
// four LDS and two PRMT. Zero points come in a second register, from a matrix of their own.
template <typename Config>
struct StagedColumns {
  static constexpr int kRowTileBytes = 64 * 2;

  // Where this lane's row of these matrices is.
  static __device__ uint32_t lane_offset() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return 2 * Config::column(warp, 0) + lane % 2 * 16 +
           (Config::kZeros ? lane / 8 % 2 * Config::kScaleBytes : 0);
  }
};

}  // namespace mixed_gemm
