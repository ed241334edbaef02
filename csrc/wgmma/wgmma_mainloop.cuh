// Mainloop of the wgmma family: one thread asks the copy engine for tokens, packed weights and
// scales of a k-tile; two warpgroups convert weights in registers, where wgmma reads them, while
// the products of the step before run.
#pragma once
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/array.h"
#include "cutlass/fast_math.h"
#include "dequant/apply_scale.h"
#include "dequant/integer_converter.h"
#include "layout/smem_tile.h"
#include "wgmma/tma_pipeline.cuh"
#include "wgmma/warpgroup_mma.cuh"
#include "wgmma/wgmma_config.cuh"

namespace mixed_gemm {

// Rows of scales. A k-tile needs 1 of them, or up to 4 ("fine"): units of 16 k map to rows.
struct ScaleRows {
  cutlass::FastDivmod units_per_row;
  int per_tile;  // 1 or 4
  ZeroMode zero_mode;
  __device__ int row(int unit) const { return units_per_row.div(unit); }
};

template <typename Config>
class WgmmaMainloop {
  using Layout = typename Config::Layout;
  using Mma = WarpgroupMma<typename Config::Format, Config::kTile.m>;
  using Position = RingPosition<Config::kStages>;
  static constexpr int kSteps = kTileK / kMmaK;
  static constexpr int kWords = Layout::kBlocksPerTile * 2;  // of a lane: two octets of columns
  static constexpr int kStepsPerBlock = kSteps / Layout::kBlocksPerTile;
  static constexpr int kRowTiles = Config::kRowTiles;
  // Steps whose products run while the next ones' weights are converted: narrow products are too
  // short to hide a conversion behind one (151 for 157 us at 64 x 57344 x 8192).
  static constexpr int kGroup = Config::kTile.m <= 64 ? 2 : 1;

 public:
  using Sums = cutlass::Array<float, Config::kSums>;
  struct Copies {
    CUtensorMap tokens, weights, scales, zeros;
    ScaleRows rows;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
  };

  __device__ WgmmaMainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), storage_(storage) {}

  // --- the thread that asks for copies -----------------------------------------------------------
  __device__ void request(int row0, int column0, int begin, int end) {
    for (int tile = begin; tile < end; ++tile, position_.next()) {
      storage_.barriers.wait_empty(position_);
      uint8_t* stage = storage_.stages[position_.stage];
      uint64_t* full = &storage_.barriers.full[position_.stage];
      const int scale_bytes = copies_.rows.per_tile * Config::kScaleRowBytes;
      constexpr int kVectors = Config::kScaled ? (Config::kZeros ? 2 : 1) : 0;
      storage_.barriers.expect(position_,
                               Config::kTokenBytes + Config::kWeightBytes + kVectors * scale_bytes);
      copy_box(copies_.weights, full, stage + Config::kTokenBytes, tile * Layout::kLineBytes,
               column0 / Layout::kInterleave);
      copy_box(copies_.tokens, full, stage, tile * kTileK, row0);
      if constexpr (Config::kScaled) {
        const int row = copies_.rows.row(tile * kSteps);
        copy_box(copies_.scales, full, scales_of(stage), column0, row);
        if constexpr (Config::kZeros) {
          copy_box(copies_.zeros, full, scales_of(stage) + Config::kScaleBytes, column0, row);
        }
      }
    }
  }

  // --- the warps that multiply -------------------------------------------------------------------
  __device__ void multiply(int begin, int end, Sums& sums) {
    uint32_t fragments[kSteps][kRowTiles][4];
    uint32_t words[kRowTiles][kWords];
    if (begin >= end) return;
    storage_.barriers.wait_full(position_);
    load_words(words);
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kGroup; ++step) convert_all(begin, step, words, fragments[step]);
    for (int tile = begin; tile < end; ++tile) {
      const int current = position_.stage;
      const uint64_t tokens = swizzled_descriptor(storage_.stages[current]);
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < kSteps; group += kGroup) {
        cute::warpgroup_arrive();
        CUTLASS_PRAGMA_UNROLL
        for (int step = group; step < group + kGroup; ++step) {
          CUTLASS_PRAGMA_UNROLL
          for (int t = 0; t < kRowTiles; ++t) {
            Mma::multiply(sums.data() + t * Mma::kSums, fragments[step][t],
                          tokens + step * kDescriptorStep);
          }
        }
        cute::warpgroup_commit_batch();
        cute::warpgroup_wait<1>();  // the group before is done
        if (group == 0 && tile > begin) release(current == 0 ? Config::kStages - 1 : current - 1);
        const bool last = group + kGroup == kSteps;
        if (last) {
          if (tile + 1 == end) break;
          position_.next();
          storage_.barriers.wait_full(position_);
          load_words(words);
        }
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kGroup; ++i) {
          const int step = (group + kGroup + i) % kSteps;
          convert_all(last ? tile + 1 : tile, step, words, fragments[step]);
        }
      }
    }
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(sums.data());
    release(position_.stage);
    position_.next();
  }

 private:
  static __device__ uint8_t* scales_of(uint8_t* stage) {
    return stage + Config::kTokenBytes + Config::kWeightBytes;
  }
  __device__ void release(int stage) {
    if (threadIdx.x % 32 == 0) storage_.barriers.release(stage);
  }

  // Words of blocks (2 l, 2 l + 1) of columns g and g + 8: words[t][4 l + 2 block + half].
  __device__ void load_words(uint32_t (&words)[kRowTiles][kWords]) const {
    const uint8_t* weights = storage_.stages[position_.stage] + Config::kTokenBytes;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      const int column = Config::column(warp, t) + lane % 16;
      const int line = column / Layout::kInterleave;
      CUTLASS_PRAGMA_UNROLL
      for (int l = 0; l < kWords / 4; ++l) {
        const int chunk = column % Layout::kInterleave * Layout::kBlocksPerTile + 2 * l + lane / 16;
        cutlass::arch::ldsm<cutlass::layout::RowMajor, 4>(
            reinterpret_cast<cutlass::Array<unsigned, 4>&>(words[t][4 * l]),
            weights + SmemActivationTile::offset(line, chunk));
      }
    }
  }

  __device__ void convert_all(int tile, int step, const uint32_t (&words)[kRowTiles][kWords],
                              uint32_t (&fragments)[kRowTiles][4]) {
    load_scales(tile, step);
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) convert(words[t], t, step, fragments[t]);
  }

  // Of columns g and g + 8, each in both halves of a register.
  __device__ void load_scales(int tile, int step) {
    if (!Config::kScaled || (step > 0 && copies_.rows.per_tile == 1)) return;
    const int row = copies_.rows.row(tile * kSteps + step) - copies_.rows.row(tile * kSteps);
    const uint8_t* stage = storage_.stages[position_.stage];
    const int g = threadIdx.x % 32 / 4, warp = threadIdx.x / 32;
    const auto* scales = reinterpret_cast<const uint16_t*>(
        stage + Config::kTokenBytes + Config::kWeightBytes + row * Config::kScaleRowBytes);
    const bool sub = copies_.rows.zero_mode == ZeroMode::kSub;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const int column = Config::column(warp, t) + g + 8 * h;
        scale_[t][h] = prmt<0x1010>(uint32_t(scales[column]), 0u);
        if constexpr (Config::kZeros) {
          const uint32_t zero = scales[column + Config::kScaleBytes / 2];
          subtrahend_[t][h] = sub ? prmt<0x1010>(zero, 0u) : 0u;
          addend_[t][h] = sub ? 0u : prmt<0x1010>(zero, 0u);
        }
      }
    }
  }

  __device__ void convert(const uint32_t (&words)[kWords], int t, int step,
                          uint32_t (&fragment)[4]) const {
    const int block = step / kStepsPerBlock;
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      uint32_t pairs[2];
      IntegerConverter<typename Config::Format, Config::kBits>::convert_step(
          words[2 * block + h], step % kStepsPerBlock, pairs);
      CUTLASS_PRAGMA_UNROLL
      for (int p = 0; p < 2; ++p) {
        if constexpr (Config::kZeros) {
          pairs[p] = apply_scale_and_zero<typename Config::Format>(
              pairs[p], scale_[t][h], subtrahend_[t][h], addend_[t][h]);
        } else if constexpr (Config::kScaled) {
          pairs[p] = apply_scale<typename Config::Format>(pairs[p], scale_[t][h]);
        }
        fragment[2 * p + h] = pairs[p];
      }
    }
  }

  const Copies& copies_;
  SharedStorage& storage_;
  Position position_;
  uint32_t scale_[kRowTiles][2], subtrahend_[kRowTiles][2], addend_[kRowTiles][2];
};

}  // namespace mixed_gemm
