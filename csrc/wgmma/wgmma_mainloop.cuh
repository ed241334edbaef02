// Mainloop of the wgmma family: one thread asks the copy engine for tokens, packed weights and
// scales of a k-tile; two warpgroups convert weights in registers, where wgmma reads them, while
// the products of the step before run.
#pragma once
#include "cutlass/arch/memory_sm75.h"
#include "cutlass/array.h"
#include "dequant/folding_converter.h"
#include "layout/smem_tile.h"
#include "wgmma/tma_pipeline.cuh"
#include "wgmma/warpgroup_mma.cuh"
#include "wgmma/wgmma_config.cuh"
#include "wgmma/wgmma_scales.cuh"

namespace mixed_gemm {

template <typename Config>
class WgmmaMainloop {
  using Layout = typename Config::Layout;
  using Converter = FoldingConverter<typename Config::Format, Config::kBits>;
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
    StagedScaleRows rows;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
  };

  __device__ WgmmaMainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), storage_(storage), scales_(copies.rows) {}

  static __device__ void prefetch_maps(const Copies& copies) {
    prefetch_map(copies.tokens);
    prefetch_map(copies.weights);
    if constexpr (Config::kScaled) prefetch_map(copies.scales);
    if constexpr (Config::kZeros) prefetch_map(copies.zeros);
  }

  // --- the thread that asks for copies -----------------------------------------------------------
  __device__ void request(int row0, int column0, int begin, int end) {
    for (int tile = begin; tile < end; ++tile, position_.next()) {
      storage_.barriers.wait_empty(position_);
      uint8_t* stage = storage_.stages[position_.stage];
      uint64_t* full = &storage_.barriers.full[position_.stage];
      constexpr int kVectors = Config::kScaled ? (Config::kZeros ? 2 : 1) : 0;
      storage_.barriers.expect(position_,
                               Config::kTokenBytes + Config::kWeightBytes +
                                   kVectors * copies_.rows.of_tile * Config::kScaleRowBytes);
      copy_box(copies_.weights, full, stage + Config::kTokenBytes, tile * Layout::kLineBytes,
               column0 / Layout::kInterleave);
      copy_box(copies_.tokens, full, stage, tile * kTileK, row0);
      if constexpr (Config::kScaled) request_scales(tile, column0, full, stage + kScaleOffset);
    }
  }

  // --- the warps that multiply -------------------------------------------------------------------
  __device__ void multiply(int begin, int end, Sums& sums) {
    if (begin >= end) return;
    if (!Config::kScaled || copies_.rows.of_tile == 1) {
      multiply_tiles<1>(begin, end, sums);
    } else if constexpr (Config::kScaled) {
      if (Config::kScaleRows == 2 || copies_.rows.of_tile == 2) {
        multiply_tiles<2>(begin, end, sums);
      } else {
        multiply_tiles<Config::kScaleRows>(begin, end, sums);
      }
    }
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(sums.data());
    if constexpr (Converter::kUnit != 1) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kSums; ++i) sums[i] *= Converter::kUnit;
    }
    release(position_.stage);
    position_.next();
  }

 private:
  static constexpr int kScaleOffset = Config::kTokenBytes + Config::kWeightBytes;

  __device__ void request_scales(int tile, int column0, uint64_t* full, uint8_t* to) const {
    const StagedScaleRows& rows = copies_.rows;
    for (int row = 0; row < rows.of_tile; row += rows.of_copy) {
      const int group = rows.group(tile, row);
      copy_box(copies_.scales, full, to + row * Config::kScaleRowBytes, column0, group);
      if constexpr (Config::kZeros) {
        copy_box(copies_.zeros, full, to + Config::kScaleBytes + row * Config::kScaleRowBytes,
                 column0, group);
      }
    }
  }

  // kRows: of scales, in a stage.
  template <int kRows>
  __device__ void multiply_tiles(int begin, int end, Sums& sums) {
    uint32_t fragments[kSteps][kRowTiles][4];
    uint32_t words[kRowTiles][kWords];
    scales_.start(begin);
    enter_tile(words);
    prepare<kRows>(0);
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < kGroup; ++step) convert<kRows>(step, words, fragments[step]);
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
        const int next = (group + kGroup) % kSteps;
        if (next != 0) {
          prepare<kRows>(next);
        } else if (tile + 1 < end) {
          position_.next();
          enter_tile(words);
          prepare<kRows>(0);
        }
        cute::warpgroup_wait<1>();  // the group before is done
        if (group == 0 && tile > begin) release(current == 0 ? Config::kStages - 1 : current - 1);
        // After the last tile too, in vain: a way around it would be a branch in each.
        CUTLASS_PRAGMA_UNROLL
        for (int step = next; step < next + kGroup; ++step) {
          convert<kRows>(step, words, fragments[step]);
        }
      }
    }
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

  __device__ void enter_tile(uint32_t (&words)[kRowTiles][kWords]) {
    storage_.barriers.wait_full(position_);
    load_words(words);
  }

  // The scales of a group of steps, before the products of the one before it are waited for.
  template <int kRows>
  __device__ void prepare(int group) {
    const uint8_t* rows = storage_.stages[position_.stage] + kScaleOffset;
    CUTLASS_PRAGMA_UNROLL
    for (int step = group; step < group + kGroup; ++step) {
      if constexpr (Config::kScaled) scales_.template prepare<kRows>(rows, step);
    }
  }

  template <int kRows>
  __device__ void convert(int step, const uint32_t (&words)[kRowTiles][kWords],
                          uint32_t (&fragments)[kRowTiles][4]) const {
    const int step_of_word = step % kStepsPerBlock;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < kRowTiles; ++t) {
      CUTLASS_PRAGMA_UNROLL
      for (int h = 0; h < 2; ++h) {
        const uint32_t word = words[t][2 * (step / kStepsPerBlock) + h];
        uint32_t pairs[2];
        if constexpr (Config::kScaled) {
          scales_.template convert<kRows>(word, step, step_of_word, t, h, pairs);
        } else {
          Converter::convert_step(word, step_of_word, pairs);
        }
        for (int p = 0; p < 2; ++p) fragments[t][2 * p + h] = pairs[p];
      }
    }
  }

  const Copies& copies_;
  SharedStorage& storage_;
  Position position_;
  WgmmaScales<Config> scales_;
};

}  // namespace mixed_gemm
