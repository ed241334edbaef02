// Compiled from sm_89 on only (CMakeLists.txt): fp8 has no tensor cores before.
#include "scaled/launch.cuh"
#include "scaled/launchers.h"

namespace mixed_gemm {

const ScaledLaunchers& fp8_scaled_launchers() {
  static constexpr ScaledLaunchers kTable = kScaledLaunchers<Fp8Config>;
  return kTable;
}

int launch_fp8_scaled_reduce(const ScaledMmProblem& problem, const Work& work) {
  return launch_scaled_reduce<float>(problem, work);
}

}  // namespace mixed_gemm
