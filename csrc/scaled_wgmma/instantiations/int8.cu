#include "scaled_wgmma/launch.cuh"
#include "scaled_wgmma/launchers.h"

namespace mixed_gemm {

const WgmmaInt8Launchers& wgmma_int8_launchers() {
  static constexpr WgmmaInt8Launchers kTable =
      wgmma_int8_row_launchers(std::make_integer_sequence<int, kNumWgmmaInt8TileConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
