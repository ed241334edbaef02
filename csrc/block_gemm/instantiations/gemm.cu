#include "block_gemm/launch.cuh"
#include "block_gemm/launchers.h"

namespace mixed_gemm {

const BlockLaunchers& block_gemm_launchers(int mode) {
  static constexpr BlockLaunchers kTable[] = {
      kBlockLaunchers<kCoarseBlocks>, kBlockLaunchers<kFineBlocks>, kBlockLaunchers<kSummedBlocks>};
  static_assert(sizeof(kTable) / sizeof(kTable[0]) == kNumBlockModes, "one for each");
  return kTable[mode];
}

}  // namespace mixed_gemm
