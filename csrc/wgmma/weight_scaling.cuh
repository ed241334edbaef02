// Scales that multiply each weight once it is converted; zero points leave with the constants of
// the conversion (dequant/column_pair.h).
#pragma once
#include "wgmma/integer_zeros.cuh"
#include "wgmma/no_scaling.cuh"

namespace mixed_gemm {

// kRows: of scales, in a stage.
template <typename Config, int kRows,
          ZeroPoints kPoints = Config::kZeros ? ZeroPoints::kAny : ZeroPoints::kNone>
class WeightScaling : public NoScaling<Config> {
  using Columns = ColumnPair<typename Config::Format, typename Config::Weight, kPoints>;
  using Staged = StagedColumns<Config>;
  static constexpr int kStepsPerRow = StagedRows::kSteps / kRows;
  static constexpr int kRowTiles = Config::kRowTiles;

 public:
  static constexpr ZeroPoints kZeroPoints = kPoints;
  // Zero points of a group take a dozen instructions behind the wait for their stage and in front
  // of its first products. Where a block has an SM for itself, scales and zero points of the next
  // group are loaded as soon as its stage is seen to be full: 0.96 to 0.98 of the time with 128
  // tokens. (With two blocks, or without zero points, 1.01 to 1.05; and 1.02 to 1.05 if the warp
  // votes on that in front of the load instead of behind the test.) So are those of 16 tokens,
  // which wait for the stage there and need no vote: 0.97 to 1.00.
  static constexpr bool kLooksAhead =
      kRows == 1 && Config::kZeros && (Config::kBlocks == 1 || Config::kTile.m == 16);

  __device__ WeightScaling(const StagedScales& staged, int begin)
      : staged_(staged), starts_(staged.starts(begin)), offset_(Staged::lane_offset()) {}

  // Looks at the scales that come with k-tile `tile`.
  __device__ void see_next(int tile) {
    if (kLooksAhead) has_rows_ = starts_.enter(staged_.rows, tile);
  }
  __device__ void load_next(uint32_t scales) {
    if (kLooksAhead && has_rows_) load(scales, 0);
  }

  // Prepares the scales that `step` of `tile` needs and the step before it did not.
  __device__ void prepare_step(uint32_t scales, int tile, int step) {
    if (step % kStepsPerRow != 0) return;
    const int row = step / kStepsPerRow;
    if constexpr (kLooksAhead) {
      if (!has_rows_) return;
    } else {
      // Only the first tile of a group has rows of scales (prepared for each tile, 64 and 128
      // tokens took 1.09 and 1.12 of the time without zero points, then 1.06).
      if (kRows == 1 && !starts_.enter(staged_.rows, tile)) return;
      load(scales, row);
    }
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      if constexpr (kPoints == ZeroPoints::kWhole) {
        columns_[row][t].fold_whole(missed_);
      } else {
        columns_[row][t].fold(staged_.folding);
      }
    }
  }

  __device__ void convert(const typename Config::Converter& converter, uint32_t word, int step,
                          int step_of_word, int t, int half, uint32_t (&pairs)[2]) const {
    columns_[step / kStepsPerRow][t].convert_step(converter, word, step_of_word, half, pairs);
  }

  __device__ bool missed() const {
    return kPoints == ZeroPoints::kWhole && IntegerZeros<Config>::is_any(missed_);
  }

 private:
  __device__ void load(uint32_t scales, int row) {
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      load_transposed(scales + offset_ + row * Config::kScaleRowBytes + t * Staged::kRowTileBytes,
                      columns_[row][t].loaded);
    }
  }

  const StagedScales& staged_;
  GroupStarts starts_;
  uint32_t offset_;
  bool has_rows_;
  uint32_t missed_ = 0;
  Columns columns_[kRows][kRowTiles];
};

}  // namespace mixed_gemm
