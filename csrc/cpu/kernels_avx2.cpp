// Compiled with -mavx2 -mfma -mf16c; reached only after CPUID says so.
#include "cpu/vector_avx2.h"

namespace mixed_gemm::cpu {

const CpuKernels& avx2_kernels() {
  static constexpr CpuKernels kKernels = make_kernels<Avx2>("avx2");
  return kKernels;
}

}  // namespace mixed_gemm::cpu
