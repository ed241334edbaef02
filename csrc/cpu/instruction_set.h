// The kernels that this machine runs.
#pragma once
#include <string>
#include <vector>

#include "cpu/cpu_kernels.h"

namespace mixed_gemm::cpu {

// Every table that this machine can execute, slowest first; the first is "portable".
std::vector<const CpuKernels*> supported_kernels();

// The fastest supported table not above `limit` (a name in instruction_set.cpp, or empty for
// no limit). Throws std::invalid_argument on any other name.
const CpuKernels& select_kernels(const std::string& limit);

// The kernels that the environment variable MIXED_GEMM_CPU selects, decided at the first call.
const CpuKernels& active_kernels();
// The kernels for a GEMM with such weights: the portable ones where the others decode none.
const CpuKernels& active_kernels(WeightType weight);

}  // namespace mixed_gemm::cpu
