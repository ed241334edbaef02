// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq; reached only after CPUID says so.

#include "cpu/quiet_avx512.h"

#include "cpu/float8_avx512.h"
#include "cpu/integer_avx512.h"
#include "cpu/vector_avx512.h"
#include "cpu/vector_dense.h"
#include "cpu/vector_gate.h"
#include "cpu/vector_multiples.h"

namespace mixed_gemm::cpu {

const CpuKernels& avx512_kernels() {
  static constexpr CpuKernels kKernels = {"avx512",
                                          Avx512::kLanes,
                                          make_operand_kernels<Avx512>(),
                                          nullptr,
                                          nullptr,
                                          &kIntegerAvx512,
                                          to_float<Avx512>,
                                          from_float<Avx512>,
                                          &kFloat8Avx512,
                                          add_multiple<Avx512>,
                                          activate_row<Avx512::kLanes>,
                                          gate_row<Avx512::kLanes>};
  return kKernels;
}

}  // namespace mixed_gemm::cpu
