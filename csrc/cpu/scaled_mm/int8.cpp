// int8 x int8 on the CPU: exact int32 tiles, then the epilogue.
#include "cpu/integer_gemm.h"
#include "cpu/scaled_mm/epilogue_cpu.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {

void scaled_mm_int8(const CpuKernels& kernels, const ScaledMmProblem& p,
                    const ParallelFor& parallel_for) {
  const ScaledEpilogueCpu epilogue(kernels, p);
  integer_gemm(*kernels.int8, p, epilogue, parallel_for);
}

}  // namespace mixed_gemm::cpu
