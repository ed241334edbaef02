// The CPU backend of products whose rows belong to experts.
#pragma once
#include "core/parallel.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

// Fills problem.gemm.d, for all that gemm_cpu takes; its bits do not depend on the threads. The
// offsets neither fall nor leave the rows.
void grouped_gemm_cpu(const GroupedGemmProblem& problem, const ParallelFor& parallel_for);

}  // namespace mixed_gemm
