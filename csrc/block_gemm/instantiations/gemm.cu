#include "block_gemm/launch.cuh"
#include "block_gemm/launchers.h"

namespace mixed_gemm {

const BlockLaunchers& block_gemm_launchers(int scale_mode) {
  static constexpr BlockLaunchers kTable[] = {kBlockLaunchers<kBlockScaleRows[0]>,
                                              kBlockLaunchers<kBlockScaleRows[1]>};
  static_assert(sizeof(kTable) / sizeof(kTable[0]) == kNumBlockScaleRows, "one for each");
  return kTable[scale_mode];
}

}  // namespace mixed_gemm
