// 8-bit x 8-bit by wgmma: both operands come from shared memory, where TMA puts them. Tokens are
// the 64-row operand, so a warp's sums lie as those of mma.m16n8 do and end in the same
// epilogues.
#pragma once
#include <cstddef>
#include <type_traits>

#include "cutlass/array.h"
#include "hopper/tma_pipeline.cuh"
#include "scaled_wgmma/block_scales.cuh"
#include "scaled_wgmma/config.cuh"

namespace mixed_gemm {

template <typename Config>
class WgmmaScaledMainloop {
  using Operand = typename Config::Operand;
  using Mma = typename Operand::template Mma<Config::kColumns>;
  static constexpr int kSteps = kScaledTileK / 32;

 public:
  using Sums = cutlass::Array<typename Config::Sum, Config::kSums>;
  using ScaleArgs = std::conditional_t<Operand::kBlocks, BlockScaleArgs, NoBlockScaleArgs>;
  struct Copies : ScaleArgs {
    CUtensorMap tokens, weights;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
  };

  __device__ WgmmaScaledMainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), position_(storage.stages) {}

  static __device__ void prefetch_maps(const Copies& copies) {
    prefetch_map(copies.tokens);
    prefetch_map(copies.weights);
  }

  // Called by the thread that issues the TMA loads: asks for lines [begin, end) of K.
  __device__ void request(int row0, int column0, int begin, int end) {
    for (int line = begin; line < end; ++line, position_ = position_.next()) {
      const uint32_t full = position_.full_barrier(), stage = position_.address();
      position_.wait_empty();
      position_.expect(Config::kStageBytes);
      position_.check_box(stage, Config::kTokenBytes);
      position_.check_box(stage + Config::kTokenBytes, Config::kStageBytes - Config::kTokenBytes);
      copy_box(copies_.weights, full, stage + Config::kTokenBytes, line * kScaledTileK, column0);
      copy_box(copies_.tokens, full, stage, line * kScaledTileK, row0);
    }
  }

  // Called by the warps that multiply: lines [begin, end) of K.
  __device__ void multiply(int row0, int column0, int begin, int end, Sums& sums) {
    if constexpr (Operand::kPromotes) {
      multiply_and_promote(row0, column0, begin, end, sums);
    } else {
      multiply(begin, end, sums);
    }
  }

 private:
  using Position =
      RingPosition<Config::kStages, Config::kStageBytes, offsetof(SharedStorage, barriers)>;

  // The products of a line run while the next one is waited for.
  __device__ void multiply(int begin, int end, Sums& sums) {
    const int group = static_cast<int>(threadIdx.x) / 128;
    const int rows = Config::group_row(group) * kScaledTileK;
    const int columns = Config::kTokenBytes + Config::group_column(group) * kScaledTileK;
    uint32_t previous = 0;  // the barrier of the stage before
    for (int line = begin; line < end; ++line, position_ = position_.next()) {
      position_.wait_full();
      const uint64_t tokens = swizzled_descriptor(position_.address() + rows);
      const uint64_t weights = swizzled_descriptor(position_.address() + columns);
      cute::warpgroup_arrive();
      CUTLASS_PRAGMA_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        CUTLASS_PRAGMA_UNROLL
        for (int t = 0; t < Config::kRowTiles; ++t) {
          Mma::multiply(sums.data() + t * Config::kSumsPerTile,
                        tokens + t * kDescriptor64Rows + step * kDescriptorStep,
                        weights + step * kDescriptorStep);
        }
      }
      cute::warpgroup_commit_batch();
      cute::warpgroup_wait<1>();
      if (previous != 0) release(previous);
      previous = position_.empty_barrier();
    }
    cute::warpgroup_wait<0>();
    pin<Config::kSums>(reinterpret_cast<uint32_t*>(sums.data()));
    if (previous != 0) release(previous);
  }

  // The products of a line are summed apart and then added to `sums`, the columns of one
  // instruction after the other: one warpgroup adds while the other one, or another block,
  // multiplies. They fall into this by themselves.
  __device__ void multiply_and_promote(int row0, int column0, int begin, int end, Sums& sums) {
    const int group = this_warpgroup();
    const int rows = Config::group_row(group) * kScaledTileK;
    const int columns = Config::kTokenBytes + Config::group_column(group) * kScaledTileK;
    const int row = row0 + Config::group_row(group) + static_cast<int>(threadIdx.x) / 32 % 4 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
    Scales scales(copies_, row, column0 + Config::group_column(group), begin);
    scales.request();
    for (int line = begin; line < end; ++line, position_ = position_.next()) {
      position_.wait_full();
      const uint64_t tokens = swizzled_descriptor(position_.address() + rows);
      const uint64_t weights = swizzled_descriptor(position_.address() + columns);
      CUTLASS_PRAGMA_UNROLL
      for (int part = 0; part < Config::kColumnParts; ++part) {
        float products[kProducts];
        cute::warpgroup_arrive();
        CUTLASS_PRAGMA_UNROLL
        for (int step = 0; step < kSteps; ++step) {
          Mma::multiply(products, tokens + step * kDescriptorStep,
                        weights + part * kPartStride + step * kDescriptorStep, step > 0);
        }
        cute::warpgroup_commit_batch();
        if (part == 0) {  // while the tensor cores multiply
          scales.take();
          if (line + 1 < end) scales.request();
        }
        cute::warpgroup_wait<0>();
        pin<kProducts>(products);
        if (part == Config::kColumnParts - 1) release(position_.empty_barrier());
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kProducts; ++i) {
          float& sum = sums[part * kProducts + i];
          sum = scales.add(sum, products[i], i / 2 % 2, part);
        }
      }
    }
  }

  static constexpr int kProducts = Config::kColumns / 2;  // of a thread and an instruction
  static constexpr uint64_t kPartStride = Config::kColumns / 64 * kDescriptor64Rows;
  using Scales =
      std::conditional_t<Operand::kBlocks, BlockScales<Config::kColumnParts>, NoBlockScales>;
  static_assert(!Operand::kPromotes || Config::kRowTiles == 1, "an instruction's rows");
  static_assert(Config::kColumnParts == 1 || Config::kColumns == kScaleBlock,
                "instructions side by side have scales side by side");

  __device__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) Position::release(barrier);
  }

  const Copies& copies_;
  Position position_;
};

}  // namespace mixed_gemm
