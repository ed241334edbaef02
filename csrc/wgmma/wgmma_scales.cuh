// Scales and zeros of a k-tile: which rows of them it needs, and what the columns of a lane have in
// registers.
#pragma once
#include "core/bit_ops.h"
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/array.h"
#include "cutlass/cutlass.h"
#include "cutlass/fast_math.h"
#include "dequant/column_pair.h"
#include "wgmma/wgmma_config.cuh"

namespace mixed_gemm {

// A stage holds one row of scales ("coarse": groups are multiples of a k-tile), one for each half
// of a k-tile, or one for each step of 16 k, the same one perhaps more than once: the code that
// multiplies counts nothing (tests of each step cost 3 to 5 % at 64 tokens).
struct StagedScaleRows {
  static constexpr int kSteps = kTileK / kMmaK;
  cutlass::FastDivmod steps_per_group;
  int tiles_per_group;         // when coarse
  int of_tile, steps_per_row;  // of a stage
  int of_copy;                 // rows that the copy engine takes at once
  uint32_t folded;             // all bits in zero mode "sub", where zero points are folded

  StagedScaleRows() = default;
  StagedScaleRows(int64_t group_size, int64_t k, ZeroMode zero_mode)
      : steps_per_group(static_cast<int>(ceil_div(group_size, kMmaK))),
        tiles_per_group(static_cast<int>(ceil_div(group_size, kTileK))),
        folded(zero_mode == ZeroMode::kSub ? ~0u : 0u) {
    of_tile = wgmma_scale_rows(group_size, k);
    steps_per_row = kSteps / of_tile;
    of_copy = group_size * of_tile == kTileK ? of_tile : 1;
  }
  // The group of row `row` of k-tile `tile`.
  __device__ int group(int tile, int row) const {
    return steps_per_group.div(tile * kSteps + row * steps_per_row);
  }
};

template <typename Config>
class WgmmaScales {
  static constexpr int kSteps = StagedScaleRows::kSteps;
  static constexpr int kRowTiles = Config::kRowTiles;

 public:
  __device__ explicit WgmmaScales(const StagedScaleRows& rows) : rows_(rows) {}

  // The next k-tile is `tile`, whichever was before.
  __device__ void start(int tile) {
    same_tiles_ = rows_.group(tile, 0) * rows_.tiles_per_group - tile;
  }

  // What `step` needs and the step before it did not, from a stage of kRows rows.
  template <int kRows>
  __device__ void prepare(const uint8_t* stage, int step) {
    constexpr int kStepsPerRow = kSteps / kRows;
    if (step % kStepsPerRow != 0) return;
    // Zero points take a dozen instructions, so not for each tile of a group (groups of 128, 64 and
    // 128 tokens: 1.09 and 1.12 of the time without zero points, then 1.06).
    if constexpr (Config::kZeros && kRows == 1) {
      if (--same_tiles_ >= 0) return;
      same_tiles_ += rows_.tiles_per_group;
    }
    const int warp = threadIdx.x / 32, row = step / kStepsPerRow;
    const uint8_t* rows = stage + row * Config::kScaleRowBytes + lane_offset();
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      constexpr int kMatrices = Config::kZeros ? 2 : 1;
      cutlass::Array<unsigned, kMatrices> pairs;
      cutlass::arch::ldsm<cutlass::layout::ColumnMajor, kMatrices>(
          pairs, rows + 2 * Config::column(warp, t));
      columns_[row][t].set(pairs[0], Config::kZeros ? pairs[kMatrices - 1] : 0u, rows_.folded);
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
  static __device__ int lane_offset() {
    const int lane = threadIdx.x % 32;
    return lane % 2 * 16 + (Config::kZeros ? lane / 8 % 2 * Config::kScaleBytes : 0);
  }

  const StagedScaleRows& rows_;
  int same_tiles_;  // that go on with the row of this one
  ColumnPair<typename Config::Format, Config::kBits, Config::kZeros> columns_[kSteps][kRowTiles];
};

}  // namespace mixed_gemm
