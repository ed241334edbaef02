// Needs AVX-512 F, BW, VL and DQ.
#pragma once
#include "cpu/cpu_kernels.h"

namespace mixed_gemm::test {

const cpu::CpuKernels& emulated_amx_kernels();

}  // namespace mixed_gemm::test
