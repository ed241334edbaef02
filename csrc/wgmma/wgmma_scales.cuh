// Scales and zeros of a k-tile: which rows of them it needs, and what the columns of a lane have in
// registers.
#pragma once
#include "core/bit_ops.h"
#include "cutlass/cutlass.h"
#include "cutlass/fast_math.h"
#include "dequant/column_pair.h"
#include "wgmma/warpgroup_mma.cuh"
#include "wgmma/wgmma_config.cuh"

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
  __device__ void start(const StagedScaleRows& rows, int tile) {
    next_ = rows.of_tile == 1 ? rows.group(tile, 0) * rows.tiles_per_group : tile;
  }
  __device__ bool enter(const StagedScaleRows& rows, int tile) {
    if (tile < next_) return false;
    next_ += rows.tiles_per_group;
    return true;
  }

 private:
  int next_;
};

template <typename Config>
class WgmmaScales {
  using Columns = ColumnPair<typename Config::Format, Config::kBits, Config::kZeros>;
  static constexpr int kSteps = StagedScaleRows::kSteps;
  static constexpr int kRowTiles = Config::kRowTiles;

 public:
  __device__ explicit WgmmaScales(const StagedScaleRows& rows) : rows_(rows) {}

  // The next k-tile is `tile`, whichever was before.
  __device__ void start(int tile) {
    starts_.start(rows_, tile);
    offset_ = lane_offset();
  }

  // What `step` of `tile` needs and the step before it did not, from the kRows rows of its stage.
  template <int kRows>
  __device__ void prepare(uint32_t rows, int tile, int step) {
    constexpr int kStepsPerRow = kSteps / kRows;
    if (step % kStepsPerRow != 0) return;
    // Not for each tile of a group: only the first has rows of scales, and zero points take a dozen
    // instructions (64 and 128 tokens: 1.09 and 1.12 of the time without them, then 1.06).
    if (kRows == 1 && !starts_.enter(rows_, tile)) return;
    const int row = step / kStepsPerRow;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      constexpr int kMatrices = Config::kZeros ? 2 : 1, kRowTileBytes = 64 * 2;
      uint32_t pairs[kMatrices];
      load_transposed(rows + offset_ + row * Config::kScaleRowBytes + t * kRowTileBytes, pairs);
      columns_[row][t].set(pairs[0], Config::kZeros ? pairs[kMatrices - 1] : 0u, rows_.folding);
    }
  }

  // Row tile t, column g + 8 * half.
  template <int kRows>
  __device__ void convert(uint32_t word, int step, int step_of_word, int t, int half,
                          uint32_t (&pairs)[2]) const {
    columns_[step / (kSteps / kRows)][t].convert_step(word, step_of_word, half, pairs);
  }

 private:
  // One LDSM instead of four LDS and two PRMT: columns g and g + 8 come in one register of lanes
  // (g, q), from a transposed matrix of 8 x 8 whose even rows are the first 8 columns and whose odd
  // ones are the other 8; one of scales, one of zero points. Where this lane's row of these is.
  static __device__ uint32_t lane_offset() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    return 2 * Config::column(warp, 0) + lane % 2 * 16 +
           (Config::kZeros ? lane / 8 % 2 * Config::kScaleBytes : 0);
  }

  const StagedScaleRows& rows_;
  uint32_t offset_;
  GroupStarts starts_;
  Columns columns_[kSteps][kRowTiles];
};

}  // namespace mixed_gemm
