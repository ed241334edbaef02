// int8 x int8 -> int32 by wgmma: both operands from shared memory, as the copy engine leaves them.
// Tokens are the 64-row operand, so a warp's sums lie as those of mma.m16n8 do and end in the same
// epilogues.
#pragma once
#include <cstddef>

#include "cutlass/array.h"
#include "hopper/tma_pipeline.cuh"
#include "hopper/warp_roles.cuh"
#include "hopper/warpgroup_mma.cuh"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

template <int kRow>
struct WgmmaInt8Config : WarpRoles<kWgmmaInt8TileConfigs[kRow].min_blocks> {
  static constexpr TileConfig kTile = kWgmmaInt8TileConfigs[kRow];
  static constexpr int kStages = kTile.stages;
  static constexpr int kRowTiles = kTile.warp_m / 64;  // of a warpgroup
  static constexpr int kColumns = kTile.warp_n;        // of the instruction
  static constexpr int kSumsPerTile = kColumns / 2;    // of a thread
  static constexpr int kSums = kRowTiles * kSumsPerTile;
  static constexpr int kTokenBytes = kTile.m * kScaledTileK;
  static constexpr int kStageBytes = scaled_stage_bytes(kTile);
  static_assert(kTile.m / kTile.warp_m * (kTile.n / kTile.warp_n) == WgmmaInt8Config::kMultipliers,
                "a part of the tile for each warpgroup");
  static_assert(kStageBytes % 1024 == 0, "period of the copy engine's permutation");

  // Of a warpgroup's part of the tile.
  static constexpr int kGroupsM = kTile.m / kTile.warp_m;
  static __device__ int group_row(int group) { return group % kGroupsM * kTile.warp_m; }
  static __device__ int group_column(int group) { return group / kGroupsM * kTile.warp_n; }
};

template <typename Config>
class WgmmaInt8Mainloop {
  using Mma = WarpgroupInt8Mma<Config::kColumns>;
  static constexpr int kSteps = kScaledTileK / 32;

 public:
  using Sums = cutlass::Array<int32_t, Config::kSums>;
  struct Copies {
    CUtensorMap tokens, weights;
  };
  struct SharedStorage {
    alignas(1024) uint8_t stages[Config::kStages][Config::kStageBytes];
    RingBarriers<Config::kStages> barriers;
  };

  __device__ WgmmaInt8Mainloop(const Copies& copies, SharedStorage& storage)
      : copies_(copies), position_(storage.stages) {}

  static __device__ void prefetch_maps(const Copies& copies) {
    prefetch_map(copies.tokens);
    prefetch_map(copies.weights);
  }

  // The thread that asks for copies: lines [begin, end) of K.
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

  // The warps that multiply. The products of a line run while the next one is waited for.
  __device__ void multiply(int /*row0*/, int /*column0*/, int begin, int end, Sums& sums) {
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
    pin_sums(sums);
    if (previous != 0) release(previous);
  }

 private:
  using Position =
      RingPosition<Config::kStages, Config::kStageBytes, offsetof(SharedStorage, barriers)>;

  static __device__ void pin_sums(Sums& sums) {
    pin<Config::kSums>(reinterpret_cast<uint32_t*>(sums.data()));
  }
  __device__ void release(uint32_t barrier) {
    if (threadIdx.x % 32 == 0) Position::release(barrier);
  }

  const Copies& copies_;
  Position position_;
};

}  // namespace mixed_gemm
