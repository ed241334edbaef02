// Scales and zeros of the columns of a lane, row after row: a row of the next steps is read from
// shared memory as soon as the one before is in use, so that nobody waits for it.
#pragma once
#include "core/bit_ops.h"
#include "cutlass/cutlass.h"
#include "cutlass/fast_math.h"
#include "dequant/column_pair.h"
#include "wgmma/wgmma_config.cuh"

namespace mixed_gemm {

// Which row a unit of 16 k has. A k-tile meets 1 row ("coarse"), or 2, or 4 of groups of 16.
struct ScaleRows {
  cutlass::FastDivmod units_per_row;
  int per_tile;
  uint32_t folded;  // all bits if zero points are folded: zero mode "sub"

  ScaleRows() = default;
  ScaleRows(int64_t group_size, int64_t groups, ZeroMode zero_mode)
      : folded(zero_mode == ZeroMode::kSub ? ~0u : 0u) {
    constexpr int kSteps = kTileK / kMmaK;
    const bool coarse = groups == 1 || group_size % kTileK == 0;
    // The only group may end within a k-tile, but no row follows it.
    const int units = static_cast<int>(coarse ? round_up(ceil_div(group_size, kMmaK), kSteps)
                                              : group_size / kMmaK);
    units_per_row = cutlass::FastDivmod(units);
    per_tile = coarse ? 1 : units == 1 ? kSteps : 2;
  }
  __device__ int row(int unit) const { return units_per_row.div(unit); }
};

template <typename Config>
class WgmmaScales {
  static constexpr int kSteps = kTileK / kMmaK;
  static constexpr int kRowTiles = Config::kRowTiles;
  using Columns = ColumnPair<typename Config::Format, Config::kBits, Config::kZeros>;

 public:
  __device__ explicit WgmmaScales(const ScaleRows& rows) : rows_(rows) {}

  // The next k-tile is `tile`, whichever was before.
  __device__ void start(int tile) {
    const int unit = tile * kSteps;
    begins_ = kSteps - (unit - rows_.row(unit) * rows_.units_per_row.divisor);
  }

  // The next k-tile, whose rows are at `rows` in shared memory; the first one goes on with the row
  // that the last tile ended in.
  __device__ void enter_tile(const uint8_t* rows) {
    begins_ -= kSteps;
    next_ = begins_ > 0 ? 1 : 0;
    if (begins_ < kSteps) load(rows);
  }

  // Before the weights of `step` of that k-tile.
  __device__ void enter_step(const uint8_t* rows, int step) {
    if (step < begins_) return;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      columns_[t].set(prmt<0x5410>(scales_[t][0], scales_[t][1]),
                      Config::kZeros ? prmt<0x5410>(zeros_[t][0], zeros_[t][1]) : 0u, rows_.folded);
    }
    begins_ += rows_.units_per_row.divisor;
    ++next_;
    if (begins_ < kSteps) load(rows);
  }

  // Row tile t, column g + 8 * half.
  __device__ void convert(uint32_t word, int step_of_word, int t, int half,
                          uint32_t (&pairs)[2]) const {
    columns_[t].convert_step(word, step_of_word, half, pairs);
  }

 private:
  __device__ void load(const uint8_t* rows) {
    const int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32;
    const auto* row = reinterpret_cast<const uint16_t*>(rows + next_ * Config::kScaleRowBytes);
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int column = Config::column(warp, t) + g + 8 * h;
        scales_[t][h] = row[column];
        if constexpr (Config::kZeros) zeros_[t][h] = row[column + Config::kScaleBytes / 2];
      }
    }
  }

  const ScaleRows& rows_;
  int begins_;  // the step of this k-tile, or of one after it, that the next row begins with
  int next_;    // that row, counted from the first one of the tile
  uint32_t scales_[kRowTiles][2], zeros_[kRowTiles][2];  // of that row, as loaded
  Columns columns_[kRowTiles];                           // of this one
};

}  // namespace mixed_gemm
