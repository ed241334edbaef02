// Two warpgroups multiply, a third one's first thread requests the copies.
#pragma once
#include "core/tile_config.h"

namespace mixed_gemm {

template <int kMinBlocks>
struct WarpRoles {
  static constexpr int kMultipliers = 2;
  static constexpr int kMultiplyThreads = 128 * kMultipliers, kThreads = kMultiplyThreads + 128;
  // Registers of a thread: at launch, and once the copying warpgroup has given some of its own to
  // the others (setmaxnreg, which waits forever for what the block does not have).
  static constexpr int kLaunchRegisters = 65536 / (kThreads * kMinBlocks) / 8 * 8;
  static constexpr int kCopyRegisters = kMinBlocks == 1 ? 40 : 24;
  static constexpr int kMultiplyRegisters = kMinBlocks == 1 ? 232 : 104;
  static_assert(kCopyRegisters + kMultipliers * kMultiplyRegisters <=
                    (1 + kMultipliers) * kLaunchRegisters,
                "registers of a block");
};

}  // namespace mixed_gemm
