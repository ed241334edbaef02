#include "scaled_skinny/launch.cuh"

namespace mixed_gemm {

const ScaledSkinnyLaunchers& int8_skinny_launchers() {
  static constexpr ScaledSkinnyLaunchers kTable = kScaledSkinnyLaunchers<SkinnyInt8Config>;
  return kTable;
}

}  // namespace mixed_gemm
