// The 8-bit GEMMs and the quantizers on a kernel table. Tests call them directly to force one.
#pragma once
#include "core/parallel.h"
#include "cpu/cpu_kernels.h"
#include "problem/quantize.h"
#include "problem/scaled_mm.h"
#include "problem/scaled_mm_dynamic.h"

namespace mixed_gemm::cpu {

void scaled_mm_int8(const CpuKernels& kernels, const ScaledMmProblem& problem,
                    const ParallelFor& parallel_for);
void scaled_mm_int8_dynamic(const CpuKernels& kernels, const ScaledMmDynamicProblem& problem,
                            const ParallelFor& parallel_for);
void scaled_mm_float8(const CpuKernels& kernels, const ScaledMmProblem& problem,
                      const ParallelFor& parallel_for);

void quantize_per_token(const CpuKernels& kernels, const QuantizePerTokenProblem& problem,
                        const ParallelFor& parallel_for);
void quantize_per_tensor(const CpuKernels& kernels, const QuantizePerTensorProblem& problem,
                         const ParallelFor& parallel_for);
void quantize_float8(const CpuKernels& kernels, const QuantizeFloat8Problem& problem,
                     const ParallelFor& parallel_for);

}  // namespace mixed_gemm::cpu
