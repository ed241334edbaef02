// The CPU backend: the GEMM and the dequantizer on the packed weight. ops/gemm/cpu.cpp calls it;
// the instruction set (instruction_set.cpp) is chosen once at run time.
#pragma once
#include <cstdint>
#include <string>

#include "core/parallel.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Fills problem.d, for every element type, any m, n, k, group size (multiple of 16 or k), zero mode
// and activation.
void gemm_cpu(const GemmProblem& problem, const ParallelFor& parallel_for);

// The way that gemm_cpu takes, in words for plan().
const char* cpu_path(const GemmProblem& problem);

// Writes w [problem.n, problem.k], with the factor in it, to problem.d, rounded once to
// `out_element`; scales and zeros have problem.element. a, bias, pre_scale and activation are
// ignored.
void dequantize_cpu(const GemmProblem& problem, ElementType out_element,
                    const ParallelFor& parallel_for);

// "portable", "avx2", "avx512", "avx512_vnni", "avx512_bf16" or "avx512_amx"; the environment
// variable MIXED_GEMM_CPU lowers it, for tests.
std::string cpu_instruction_set();

}  // namespace mixed_gemm
