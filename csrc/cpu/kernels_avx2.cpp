// Compiled with -mavx2 -mfma -mf16c; reached only after CPUID says so.
#include "cpu/float8_avx2.h"
#include "cpu/integer_avx2.h"
#include "cpu/vector_avx2.h"
#include "cpu/vector_dense.h"
#include "cpu/vector_gate.h"
#include "cpu/vector_multiples.h"

namespace mixed_gemm::cpu {

const CpuKernels& avx2_kernels() {
  static constexpr CpuKernels kKernels = {"avx2",
                                          Avx2::kLanes,
                                          make_operand_kernels<Avx2>(),
                                          nullptr,
                                          nullptr,
                                          &kIntegerAvx2,
                                          to_float<Avx2>,
                                          from_float<Avx2>,
                                          &kFloat8Avx2,
                                          add_multiple<Avx2>,
                                          activate_row<Avx2::kLanes>,
                                          gate_row<Avx2::kLanes>};
  return kKernels;
}

}  // namespace mixed_gemm::cpu
