// Scales the int32 sums of a block of K at the block's end and adds them to fp32 sums, with the
// cross terms of the two offsets,
//   d += scale_a * (scale_b * C) + offset_a * (scale_b * sum b) + (sum of A's block) * offset_b
// where A's block is summed as it is dequantized (first launch). The int32 column sums, sum b, come
// with the scales where the caller gave them. Else they are computed here by dp4a from the
// fragments that the tensor cores multiply: two instructions for eight columns a step. The
// alternatives read more or wait: summed by the first launch, B comes from memory twice, which at
// small M is all there is to do; by an mma with ones, they take a tensor-core instruction for each
// 1 to 4 of the products. Either way scale_b * sum b is rounded alike, so that results are the same
// to the bit.
//
// A worker's part of K begins and ends with blocks (BlockForm::split_lines()): the rest of a block
// whose terms cancel is smaller than the rounding of a part of it.
#pragma once
#include <type_traits>

#include "block_gemm/args.h"
#include "core/stage_check.h"
#include "cutlass/arch/memory_sm80.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "epilogue/store_tile.cuh"

namespace mixed_gemm {

template <typename Config>
class BlockSums {
  static constexpr int kRows = Config::kScaleRows;
  static constexpr int kTileM = Config::kTile.m, kTileN = Config::kTile.n;
  static constexpr int kMmaM = Config::kMmaM, kMmaN = Config::kMmaN;
  static constexpr bool kSumsGiven = Config::kSumsGiven;
  using Column = std::conditional_t<kSumsGiven, SummedColumnScale, ColumnScale>;
  static constexpr int kSlots = Config::kStages + 1;
  static constexpr int kSlotBytes = block_slot_bytes(Config::kTile, Config::kMode);
  static constexpr int kColumnBytes = kRows * kTileM * int{sizeof(RowScale)};  // offset of columns
  static_assert(kRows * (kTileM * sizeof(RowScale) + kTileN * sizeof(Column)) == kSlotBytes,
                "block_gemm/config.h must know the real slot size");

 public:
  using Sums = cutlass::Array<int32_t, Config::kAccumulators>;
  using Accumulators = cutlass::Array<float, Config::kAccumulators>;
  static constexpr int kSmemBytes = kSlots * kSlotBytes;

  // A scale step is the part of K that one row of scales serves: a line, or an mma step.
  struct Params {
    const RowScale* rows;   // [blocks, m]
    const Column* columns;  // [blocks, n]
    int m, n, blocks;
    int scale_steps;         // of K
    int split_lines, lines;  // BlockForm
    cutlass::FastDivmod steps_per_block;
  };

  __device__ BlockSums(const Params& params, uint8_t* smem, int row0, int column0, int begin, int)
      : params_(params),
        smem_(smem),
        row0_(row0),
        column0_(column0),
        fetched_(begin * kRows),
        step_(begin * kRows) {
    end_ = min((params.steps_per_block.div(step_) + 1) * params.steps_per_block.divisor,
               params.scale_steps);
    sums_.clear();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) columns_[j] = 0;
  }

  // Starts the copy of the scales of the line that is fetched. Scales that do not exist are not
  // copied: they belong to outputs that are not stored, or to scale steps that do not end a block.
  __device__ void fetch() {
    uint8_t* slot = smem_ + write_slot_ * kSlotBytes;
    copy_side<kTileM>(slot, params_.rows, params_.m, row0_);
    copy_side<kTileN>(slot + kColumnBytes, params_.columns, params_.n, column0_);
  }
  // Called when the line that is fetched is complete.
  __device__ void next() {
    fetched_ += kRows;
    write_slot_ = write_slot_ + 1 == kSlots ? 0 : write_slot_ + 1;
  }

  __device__ Sums& sums(Accumulators&) { return sums_; }

  // Sums the right-hand fragments of a step, two words for each of kMmaN tiles: 4 bytes of a column
  // each.
  __device__ void add_columns(const uint32_t* words) {
    if constexpr (!kSumsGiven) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaN; ++i) {
        columns_[i / 2] = __dp4a(static_cast<int>(words[i]), 0x01010101, columns_[i / 2]);
      }
    }
  }

  // Called after all products of a step of a line. The slot of the line is not written before the
  // barrier of the next line.
  __device__ void end_step(int step, Accumulators& accumulators) {
    constexpr int kLast = kScaledTileK / kBlockStep - 1;
    if (kRows > 1 || step == kLast) {
      if (++step_ == end_) {
        fold(smem_ + read_slot_ * kSlotBytes, kRows > 1 ? step : 0, accumulators);
        end_ = min(end_ + params_.steps_per_block.divisor, params_.scale_steps);
      }
    }
    if (step == kLast) read_slot_ = read_slot_ + 1 == kSlots ? 0 : read_slot_ + 1;
  }

 private:
  // Read anew: kept, it would be one register too many for a tile.
  static __device__ int thread_index() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
  }

  template <int kCount, typename Scale>
  __device__ void copy_side(uint8_t* slot, const Scale* scales, int count, int first) const {
    const int thread = thread_index();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kRows * kCount; i += Config::kThreads) {
      const int index = i + thread;
      const int block = params_.steps_per_block.div(fetched_ + index / kCount);
      const int at = first + index % kCount;
      MIXED_GEMM_CHECK_STAGE(slot - smem_ + (index < kRows * kCount ? index * sizeof(Scale) : 0),
                             sizeof(Scale), kSlots * kSlotBytes);
      cutlass::arch::cp_async<sizeof(Scale), cutlass::arch::CacheOperation::Always>(
          slot + index * sizeof(Scale), scales + static_cast<int64_t>(block) * count + at,
          index < kRows * kCount && at < count && block < params_.blocks);
    }
  }

  // scale_b * sum b of columns 2 q and 2 q + 1 of a tile (q = lane % 4), where mma leaves its sums.
  __device__ float2 of_block(const SummedColumnScale (&pair)[2], int, int) const {
    return make_float2(pair[0].of_block, pair[1].of_block);
  }
  __device__ float2 of_block(const ColumnScale (&pair)[2], int j, int lane) {
    const int2 sums = column_sums(j, lane);
    columns_[j] = 0;
    return make_float2(pair[0].scale * static_cast<float>(sums.x),
                       pair[1].scale * static_cast<float>(sums.y));
  }

  // The sums of the same columns. A quad has summed one column.
  __device__ int2 column_sums(int j, int lane) const {
    int sum = columns_[j];
    sum += __shfl_xor_sync(0xffffffff, sum, 1);
    sum += __shfl_xor_sync(0xffffffff, sum, 2);
    const int first = lane % 4 * 8;  // lane of quad 2 q
    return make_int2(__shfl_sync(0xffffffff, sum, first), __shfl_sync(0xffffffff, sum, first + 4));
  }

  // Adds the sums to the accumulators and clears them.
  __device__ void fold(const uint8_t* slot, int scale_row, Accumulators& accumulators) {
    const int thread = thread_index(), lane = thread % 32;
    const auto* rows = reinterpret_cast<const RowScale*>(slot) + scale_row * kTileM +
                       Config::warp_row(thread) + lane / 4;
    const auto* columns = reinterpret_cast<const Column*>(slot + kColumnBytes) +
                          scale_row * kTileN + Config::warp_column(thread) + lane % 4 * 2;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const Column pair[2] = {columns[8 * j], columns[8 * j + 1]};
      const float2 of_pair = of_block(pair, j, lane);
      const float of_columns[2] = {of_pair.x, of_pair.y};
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        const float scale_a = rows[8 * i].scale, offset_a = rows[8 * i].offset;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          const int index = pair_index<kMmaM>(i, j) + e;
          const float products = pair[e].scale * static_cast<float>(sums_[index]);
          accumulators[index] =
              fmaf(offset_a, of_columns[e], fmaf(scale_a, products, accumulators[index]));
          sums_[index] = 0;
        }
      }
    }
    __syncwarp();  // or the compiler reads all rows at once: 8 registers too many
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const float offset_b[2] = {columns[8 * j].offset, columns[8 * j + 1].offset};
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        const float sum_a = rows[8 * i].sum;
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& sum = accumulators[pair_index<kMmaM>(i, j) + e];
          sum = fmaf(sum_a, offset_b[e], sum);
        }
      }
    }
  }

  const Params& params_;
  uint8_t* smem_;
  int row0_, column0_;
  int fetched_;     // first scale step of the line that is fetched
  int step_, end_;  // scale steps multiplied; where the block of the next one ends
  int write_slot_ = 0, read_slot_ = 0;
  Sums sums_;           // of the block so far
  int columns_[kMmaN];  // this lane's part of column lane / 4 of each tile, unless sums are given
};

}  // namespace mixed_gemm
