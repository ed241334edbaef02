// Which rows of scales and zero points are in the stages of k-tiles, and where a lane finds those
// of its columns.
#pragma once
#include "core/tile_config.h"
#include "cutlass/fast_math.h"
#include "dequant/column_pair.h"
#include "wgmma/warpgroup_mma.cuh"

namespace mixed_gemm {

// A stage holds one row of scales ("coarse": groups are multiples of a k-tile), one for each half
// of a k-tile, or one for each step of 16 k, the same one perhaps more than once: the code that
// multiplies counts nothing (tests of each step cost 3 to 5 % at 64 tokens).
struct StagedScaleRows {
  static constexpr int kSteps = kTileK / kMmaK;
  cutlass::FastDivmod steps_per_group;
  int tiles_per_group;         // 1 unless coarse
  int of_tile, steps_per_row;  // of a stage
  int of_copy;                 // rows that the copy engine takes at once
  ZeroFolding folding;

  StagedScaleRows() = default;
  StagedScaleRows(int64_t group_size, int64_t k, ZeroFolding zero_folding)
      : steps_per_group(static_cast<int>(ceil_div(group_size, kMmaK))), folding(zero_folding) {
    of_tile = wgmma_scale_rows(group_size, k);
    tiles_per_group = of_tile == 1 ? static_cast<int>(ceil_div(group_size, kTileK)) : 1;
    steps_per_row = kSteps / of_tile;
    of_copy = group_size * of_tile == kTileK ? of_tile : 1;
  }
  // The group of row `row` of k-tile `tile`.
  __device__ int group(int tile, int row) const {
    return steps_per_group.div(tile * kSteps + row * steps_per_row);
  }
};

// Which k-tiles begin a group, and so have rows of scales in their stages. So does the first one of
// a run, and each where groups are no multiples of a k-tile.
class GroupStarts {
 public:
  __device__ GroupStarts(const StagedScaleRows& rows, int tile)
      : next_(rows.of_tile == 1 ? rows.group(tile, 0) * rows.tiles_per_group : tile) {}

  __device__ bool enter(const StagedScaleRows& rows, int tile) {
    if (tile < next_) return false;
    next_ += rows.tiles_per_group;
    return true;
  }

 private:
  int next_;
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
