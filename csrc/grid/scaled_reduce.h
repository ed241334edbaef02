// The second kernel of a parallel split of a scaled GEMM, by the type of the sums. Compiled in
// scaled/instantiations, next to the kernels of that type; both return a cudaError_t.
#pragma once
#include "grid/scaled_mm_args.h"

namespace mixed_gemm {

int launch_int8_scaled_reduce(const ScaledReduceArgs& args);
// Present where MIXED_GEMM_WITH_FP8 is defined.
int launch_fp8_scaled_reduce(const ScaledReduceArgs& args);

}  // namespace mixed_gemm
