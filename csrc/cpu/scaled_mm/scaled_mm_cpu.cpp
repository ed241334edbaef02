#include "cpu/scaled_mm/scaled_mm_cpu.h"

#include "cpu/instruction_set.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm {

void scaled_mm_cpu(const ScaledMmProblem& problem, const ParallelFor& parallel_for) {
  if (problem.m == 0 || problem.n == 0) return;
  const bool int8 = problem.operand == OperandType::kInt8;
  (int8 ? cpu::scaled_mm_int8 : cpu::scaled_mm_float8)(cpu::active_kernels(), problem,
                                                       parallel_for);
}

void scaled_mm_dynamic_cpu(const ScaledMmDynamicProblem& problem, const ParallelFor& parallel_for) {
  if (problem.product.m == 0 || problem.product.n == 0) return;
  cpu::scaled_mm_int8_dynamic(cpu::active_kernels(), problem, parallel_for);
}

void quantize_per_token_cpu(const QuantizePerTokenProblem& problem,
                            const ParallelFor& parallel_for) {
  cpu::quantize_per_token(cpu::active_kernels(), problem, parallel_for);
}

void quantize_per_tensor_cpu(const QuantizePerTensorProblem& problem,
                             const ParallelFor& parallel_for) {
  cpu::quantize_per_tensor(cpu::active_kernels(), problem, parallel_for);
}

void quantize_float8_cpu(const QuantizeFloat8Problem& problem, const ParallelFor& parallel_for) {
  cpu::quantize_float8(cpu::active_kernels(), problem, parallel_for);
}

}  // namespace mixed_gemm
