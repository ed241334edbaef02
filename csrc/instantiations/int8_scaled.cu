#include "instantiations/scaled_tables.h"
#include "kernel/scaled_mm_launch.cuh"

namespace mixed_gemm {

// By EpilogueKind.
const ScaledLaunchers& int8_scaled_launchers(EpilogueKind kind) {
  static constexpr ScaledLaunchers kTable[] = {
      kScaledLaunchers<Int8Config, ScaledEpilogue>,
      kScaledLaunchers<Int8Config, ScaledEpilogueBias>,
      kScaledLaunchers<Int8Config, ScaledEpilogueAzp>,
      kScaledLaunchers<Int8Config, ScaledEpilogueAzpPerToken>};
  return kTable[static_cast<int>(kind)];
}

ScaledReduce int8_scaled_reduce(EpilogueKind kind) {
  static constexpr ScaledReduce kTable[] = {
      launch_scaled_reduce<int32_t, ScaledEpilogue>,
      launch_scaled_reduce<int32_t, ScaledEpilogueBias>,
      launch_scaled_reduce<int32_t, ScaledEpilogueAzp>,
      launch_scaled_reduce<int32_t, ScaledEpilogueAzpPerToken>};
  return kTable[static_cast<int>(kind)];
}

}  // namespace mixed_gemm
