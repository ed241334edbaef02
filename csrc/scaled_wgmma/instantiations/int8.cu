#include "scaled_wgmma/launch.cuh"

namespace mixed_gemm {

const WgmmaScaledLaunchers& wgmma_int8_launchers() {
  static constexpr WgmmaScaledLaunchers kTable = kWgmmaScaledLaunchers<WgmmaInt8>;
  return kTable;
}

}  // namespace mixed_gemm
