#include "scaled/launchers.h"
#include "scaled/plain_launch.cuh"

namespace mixed_gemm {

const ScaledLaunchers& int8_scaled_launchers() {
  static constexpr ScaledLaunchers kTable = kScaledLaunchers<Int8Config>;
  return kTable;
}

int launch_int8_scaled_reduce(const ScaledMmProblem& problem, const Work& work) {
  return launch_scaled_reduce<int32_t>(problem, work);
}

}  // namespace mixed_gemm
