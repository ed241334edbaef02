// Mainloop of the wgmma family: one thread asks the copy engine for tokens, packed weights and
// scales of a k-tile; two warpgroups convert weights in registers, where wgmma reads them, while
// the products of the step before run.
#pragma once
#include <cstddef>
#include <type_traits>

#include "dequant/folding_converter.h"
#include "layout/smem_tile.h"
#include "wgmma/no_scaling.cuh"
#include "wgmma/sum_scaling.cuh"
#include "wgmma/tma_pipeline.cuh"
#include "wgmma/warpgroup_mma.cuh"
#include "wgmma/weight_scaling.cuh"
#include "wgmma/wgmma_config.cuh"

namespace mixed_gemm {

template <typename Config>
class WgmmaMainloop {
  using Layout = typename Config::Layout;
  using Converter = FoldingConverter<typename Config::Format, Config::kBits>;
  using Mma = WarpgroupMma<typename Config::Format, Config::kTile.m>;
  static constexpr int kSteps = kTileK / kMmaK;
  static constexpr int kWords = Layout::kBlocksPerTile * 2;  // of a lane: two octets of columns
  static constexpr int kStepsPerBlock = kSteps / Layout::kBlocksPerTile;
  static constexpr int kRowTiles = Config::kRowTiles;
  // Steps whose products run while the next ones' weights are converted: products of few tokens
  // and one row tile are too short to hide a conversion (151 for 157 us at 64 x 57344 x 8192).
  static constexpr int kGroup = Config::kTile.m <= 64 && kRowTiles == 1 ? 2 : 1;

 public:
  using Sums = typename Config::Sums;
  struct Copies {
    CUtensorMap tokens, weights, scales, zeros;
    StagedScales staged;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
  };

  __device__ WgmmaMainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), position_(storage.stages) {}

  static __device__ void prefetch_maps(const Copies& copies) {
    prefetch_map(copies.tokens);
    prefetch_map(copies.weights);
    if constexpr (Config::kScaled) prefetch_map(copies.scales);
    if constexpr (Config::kZeros) prefetch_map(copies.zeros);
  }

  // --- the thread that asks for copies -----------------------------------------------------------
  __device__ void request(int row0, int column0, int begin, int end) {
    const int weight_row = column0 / Layout::kInterleave;
    const StagedRows& rows = copies_.staged.rows;
    const int scale_bytes = (Config::kZeros ? 2 : 1) * rows.of_tile * Config::kScaleRowBytes;
    GroupStarts starts = copies_.staged.starts(begin);
    for (int tile = begin; tile < end; ++tile, position_ = position_.next()) {
      const uint32_t full = position_.full_barrier(), stage = position_.address();
      const bool with_scales = Config::kScaled && starts.enter(rows, tile);
      position_.wait_empty();
      position_.expect(kOperandBytes + (with_scales ? scale_bytes : 0));
      copy_box(copies_.weights, full, stage + Config::kTokenBytes, tile * Layout::kLineBytes,
               weight_row);
      copy_box(copies_.tokens, full, stage, tile * kTileK, row0);
      if (with_scales) request_scales(tile, column0, full, stage + kOperandBytes);
    }
  }

  // --- the warps that multiply -------------------------------------------------------------------
  __device__ void multiply(int begin, int end, Sums& sums) {
    if (begin >= end) return;
    if constexpr (!Config::kScaled) {
      multiply_tiles<NoScaling<Config>>(begin, end, sums);
    } else if (copies_.staged.rows.of_tile == 1) {
      multiply_tiles<CoarseScaling>(begin, end, sums);
    } else if (Config::kScaleRows == 2 || copies_.staged.rows.of_tile == 2) {
      multiply_tiles<WeightScaling<Config, 2>>(begin, end, sums);
    } else {
      multiply_tiles<WeightScaling<Config, Config::kScaleRows>>(begin, end, sums);
    }
    if constexpr (Converter::kUnit != 1) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kSums; ++i) sums[i] *= Converter::kUnit;
    }
    release(last_barrier_);
  }

 private:
  using Position =
      RingPosition<Config::kStages, Config::kStageBytes, offsetof(SharedStorage, barriers)>;
  using CoarseScaling = std::conditional_t<scales_sums(Config::kTile, Config::kMode),
                                           SumScaling<Config>, WeightScaling<Config, 1>>;
  static constexpr int kOperandBytes = Config::kTokenBytes + Config::kWeightBytes;

  __device__ void request_scales(int tile, int column0, uint32_t full, uint32_t to) const {
    const StagedRows& rows = copies_.staged.rows;
    for (int row = 0; row < rows.of_tile; row += rows.of_copy) {
      const int group = copies_.staged.group(tile, row);
      copy_box(copies_.scales, full, to + row * Config::kScaleRowBytes, column0, group);
      if constexpr (Config::kZeros) {
        copy_box(copies_.zeros, full, to + Config::kScaleBytes + row * Config::kScaleRowBytes,
                 column0, group);
      }
    }
  }

  // Scaling: what is done with scales, and when (no_scaling.cuh).
  template <typename Scaling>
  __device__ void multiply_tiles(int begin, int end, Sums& sums) {
    uint32_t fragments[kSteps][kRowTiles][4];
    uint32_t words[kRowTiles][kWords];
    Scaling scaling(copies_.staged, begin);
    float* const products = scaling.products(sums);
    last_barrier_ = 0;
    word_offset_ = word_offset();
    position_.wait_full();
    load_words(words);
    scaling.look_ahead(begin);
    scaling.load_ahead(staged_scales(position_));
    prepare(scaling, begin, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kGroup; ++step) convert(scaling, step, words, fragments[step]);
    for (int tile = begin; tile < end; ++tile) {
      const uint64_t tokens = swizzled_descriptor(position_.address());
      const Position next_stage = position_.next();
      bool next_full = false;
      scaling.enter(staged_scales(position_), tile, sums);
      CUTLASS_PRAGMA_UNROLL
      for (int group = 0; group < kSteps; group += kGroup) {
        const int next = (group + kGroup) % kSteps;
        if (Scaling::kLooksAhead && next == 0 && next_full) {
          scaling.load_ahead(staged_scales(next_stage));
        }
        cute::warpgroup_arrive();
        CUTLASS_PRAGMA_UNROLL
        for (int step = group; step < group + kGroup; ++step) {
          CUTLASS_PRAGMA_UNROLL
          for (int t = 0; t < kRowTiles; ++t) {
            Mma::multiply(products + t * Mma::kSums, fragments[step][t],
                          tokens + step * kDescriptorStep);
          }
        }
        cute::warpgroup_commit_batch();
        if (group == 0) {
          next_full = next_stage.is_full();
          if (Scaling::kLooksAhead) next_full = __all_sync(~0u, next_full);
          scaling.look_ahead(tile + 1);
        }
        if (next == 0) {
          // Behind the last tile there is nothing to wait for, and what is read and converted is in
          // vain: a way around it would be a branch in each.
          if (!next_full && tile + 1 < end) next_stage.wait_full();
          last_barrier_ = position_.empty_barrier();
          position_ = next_stage;
          load_words(words);
          if (Scaling::kLooksAhead && !next_full) scaling.load_ahead(staged_scales(position_));
        }
        prepare(scaling, next == 0 ? tile + 1 : tile, next);
        cute::warpgroup_wait<1>();  // the group before is done
        if (group == 0 && last_barrier_ != 0) release(last_barrier_);
        CUTLASS_PRAGMA_UNROLL
        for (int step = next; step < next + kGroup; ++step) {
          convert(scaling, step, words, fragments[step]);
        }
      }
    }
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(products);
    scaling.finish(sums);
  }

  static __device__ uint32_t staged_scales(const Position& stage) {
    return stage.address() + kOperandBytes;
  }

  __device__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) Position::release(barrier);
  }

  // Words of blocks (2 l, 2 l + 1) of columns g and g + 8: words[t][4 l + 2 block + half].
  __device__ void load_words(uint32_t (&words)[kRowTiles][kWords]) const {
    constexpr int kRowTileBytes = 64 / Layout::kInterleave * Layout::kLineBytes;
    CUTLASS_PRAGMA_UNROLL
    for (int l = 0; l < kWords / 4; ++l) {
      // Not of the offset alone, which would be kept in registers for both.
      const uint32_t lane = (position_.address() + word_offset_) ^ 2 * l * kChunkBytes;
      CUTLASS_PRAGMA_UNROLL
      for (int t = 0; t < kRowTiles; ++t) {
        load_matrices(lane + Config::kTokenBytes + t * kRowTileBytes,
                      *reinterpret_cast<uint32_t(*)[4]>(&words[t][4 * l]));
      }
    }
  }
  // Where a lane reads among the weights, of the first row tile and blocks; row tiles are whole
  // periods of the permutation apart, and a column's chunks differ in the lowest bits of their
  // numbers.
  static __device__ uint32_t word_offset() {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = Config::column(warp, 0) + lane % 16;
    const int line = column / Layout::kInterleave;
    const int chunk = column % Layout::kInterleave * Layout::kBlocksPerTile + lane / 16;
    return SmemActivationTile::offset(line, chunk);
  }

  // The scales of a group of steps, before the products of the one before it are waited for.
  template <typename Scaling>
  __device__ void prepare(Scaling& scaling, int tile, int group) {
    CUTLASS_PRAGMA_UNROLL
    for (int step = group; step < group + kGroup; ++step) {
      scaling.prepare(staged_scales(position_), tile, step);
    }
  }

  template <typename Scaling>
  __device__ void convert(const Scaling& scaling, int step,
                          const uint32_t (&words)[kRowTiles][kWords],
                          uint32_t (&fragments)[kRowTiles][4]) const {
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const uint32_t word = words[t][2 * (step / kStepsPerBlock) + h];
        uint32_t pairs[2];
        scaling.convert(word, step, step % kStepsPerBlock, t, h, pairs);
        for (int p = 0; p < 2; ++p) fragments[t][2 * p + h] = pairs[p];
      }
    }
  }

  const Copies& copies_;
  Position position_;
  uint32_t last_barrier_;
  uint32_t word_offset_;  // made for every run: kept between these it is spilled
};

}  // namespace mixed_gemm
