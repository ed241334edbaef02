// Two warpgroups multiply, a third one's first thread requests the copies.
#pragma once
#include "hopper/stage.h"

namespace mixed_gemm {

// The warpgroup of this thread. A shuffle tells ptxas that it is one number for all of a warp: what
// is computed from it stays in uniform registers, where wgmma wants its descriptors.
__device__ inline int this_warpgroup() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);
}

template <int kBlocks_>
struct WarpRoles {
  static constexpr int kBlocks = kBlocks_;  // on an SM
  static constexpr bool kHasTable = false;  // that the mainloop fills before its first tile
  static constexpr int kMultipliers = kWgmmaMultipliers;
  static constexpr int kMultiplyThreads = 128 * kMultipliers, kThreads = kMultiplyThreads + 128;
  // Registers of a thread: at launch, and once the copying warpgroup has given some of its own to
  // the others (setmaxnreg, which waits forever for what the block does not have).
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kBlocks) / 8 * 8;
  static constexpr int kCopyRegisters = kBlocks == 1 ? 40 : 24;
  static constexpr int kMultiplyRegisters = kBlocks == 1 ? 232 : 104;
  static_assert(kCopyRegisters + kMultipliers * kMultiplyRegisters <=
                    (1 + kMultipliers) * kLaunchRegisters,
                "registers of a block");

  // The copying warp has made the barriers, and goes on; those that multiply wait for it.
  static __device__ void barriers_are_made() {
    asm volatile("bar.arrive 2, %0;" ::"n"(kMultiplyThreads + 32) : "memory");
  }
  static __device__ void wait_for_barriers() {
    asm volatile("bar.sync 2, %0;" ::"n"(kMultiplyThreads + 32) : "memory");
  }

  // All multiplying threads meet; the copying warpgroup goes on.
  static __device__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(kMultiplyThreads) : "memory");
  }
  // Meets likewise; whether `mine` holds for all of them, or for all of this warpgroup.
  static __device__ bool meet_if_all(bool mine) { return meet_if_all(mine, 1, kMultiplyThreads); }
  static __device__ bool meet_warpgroup_if_all(bool mine) {
    return meet_if_all(mine, 3 + static_cast<int>(threadIdx.x) / 128, 128);
  }

 private:
  static __device__ bool meet_if_all(bool mine, int barrier, int threads) {
    int all;
    asm volatile(
        "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; bar.red.and.pred q, %2, %3, p;"
        " selp.b32 %0, 1, 0, q; }"
        : "=r"(all)
        : "r"(static_cast<int>(mine)), "r"(barrier), "r"(threads)
        : "memory");
    return all != 0;
  }
};

}  // namespace mixed_gemm
