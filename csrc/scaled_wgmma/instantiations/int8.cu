#include "scaled/launchers.h"
#include "scaled_wgmma/launch.cuh"

namespace mixed_gemm {

const WgmmaInt8Launchers& wgmma_int8_launchers() {
  static constexpr WgmmaInt8Launchers kTable =
      wgmma_int8_row_launchers(std::make_integer_sequence<int, kNumWgmmaInt8TileConfigs>());
  return kTable;
}

}  // namespace mixed_gemm
