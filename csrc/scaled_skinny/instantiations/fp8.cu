// Compiled from sm_89 on only (CMakeLists.txt): fp8 has no tensor cores before.
#include "scaled_skinny/launch.cuh"

namespace mixed_gemm {

const ScaledSkinnyLaunchers& fp8_skinny_launchers() {
  static constexpr ScaledSkinnyLaunchers kTable = kScaledSkinnyLaunchers<SkinnyFp8Config>;
  return kTable;
}

}  // namespace mixed_gemm
