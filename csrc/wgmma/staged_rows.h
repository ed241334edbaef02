// Which rows of scales a stage holds, and which k-tiles bring some.
#pragma once
#include "core/macros.h"
#include "wgmma/config.h"

namespace mixed_gemm {

// A stage holds one row of scales ("coarse": groups are multiples of a k-tile), one for each half
// of a k-tile, or one for each step of 16 k, the same one perhaps more than once: the code that
// multiplies counts nothing (tests of each step cost 3 to 5 % at 64 tokens).
struct StagedRows {
  static constexpr int kSteps = kTileK / kMmaK;
  int tiles_per_group;         // 1 unless coarse
  int of_tile, steps_per_row;  // of a stage
  int of_copy;                 // rows that TMA takes at once

  StagedRows() = default;
  StagedRows(int64_t group_size, int64_t k) {
    of_tile = wgmma_scale_rows(group_size, k);
    tiles_per_group = of_tile == 1 ? static_cast<int>(ceil_div(group_size, kTileK)) : 1;
    steps_per_row = kSteps / of_tile;
    of_copy = group_size * of_tile == kTileK ? of_tile : 1;
  }
};

// The k-tiles that begin a group, and so have rows of scales in their stages. So does the first one
// of a run, and each where groups are no multiples of a k-tile.
class GroupStarts {
 public:
  // A run begins with k-tile `tile`; group_of(tile): the group that this one begins in.
  template <typename GroupOf>
  MIXED_GEMM_HOST_DEVICE GroupStarts(const StagedRows& rows, int tile, const GroupOf& group_of)
      : next_(rows.of_tile == 1 ? group_of(tile) * rows.tiles_per_group : tile) {}

  MIXED_GEMM_HOST_DEVICE bool enter(const StagedRows& rows, int tile) {
    if (tile < next_) return false;
    next_ += rows.tiles_per_group;
    return true;
  }

 private:
  int next_;
};

}  // namespace mixed_gemm
