// The GPUs that this build has machine code for, and which of the kernels that only some GPUs run.
// The CMake list of architectures decides; a build without CUDA, which only plans, plans for a
// build that has them all.
#pragma once

namespace mixed_gemm {

struct Build {
  bool wgmma = false;      // sm_90a
  bool fp8 = false;        // sm_89 and newer
  const char* archs = "";  // "80,86,90a", the GPUs that have code; empty without CUDA
};

constexpr Build this_build() {
  Build build;
#if defined(MIXED_GEMM_WITH_WGMMA)
  build.wgmma = true;
#endif
#if defined(MIXED_GEMM_WITH_FP8)
  build.fp8 = true;
#endif
#if defined(MIXED_GEMM_CUDA_ARCHS)
  build.archs = MIXED_GEMM_CUDA_ARCHS;
#endif
  return build;
}

}  // namespace mixed_gemm
