#include "scaled_wgmma/launch.cuh"

namespace mixed_gemm {

const WgmmaScaledLaunchers& wgmma_fp8_launchers() {
  static constexpr WgmmaScaledLaunchers kTable = kWgmmaScaledLaunchers<WgmmaFp8>;
  return kTable;
}

}  // namespace mixed_gemm
