// Compiled from sm_89 on only (CMakeLists.txt): fp8 has no tensor cores before.
#include "instantiations/scaled_tables.h"
#include "kernel/scaled_mm_launch.cuh"

namespace mixed_gemm {

// Kinds with a zero point are for integers: ops/ refuses them.
const ScaledLaunchers& fp8_scaled_launchers(EpilogueKind kind) {
  static constexpr ScaledLaunchers kTable[] = {kScaledLaunchers<Fp8Config, ScaledEpilogue>,
                                               kScaledLaunchers<Fp8Config, ScaledEpilogueBias>};
  return kTable[static_cast<int>(kind)];
}

ScaledReduce fp8_scaled_reduce(EpilogueKind kind) {
  static constexpr ScaledReduce kTable[] = {launch_scaled_reduce<float, ScaledEpilogue>,
                                            launch_scaled_reduce<float, ScaledEpilogueBias>};
  return kTable[static_cast<int>(kind)];
}

}  // namespace mixed_gemm
