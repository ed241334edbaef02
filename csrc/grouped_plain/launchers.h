#pragma once
#include "grouped/launch.h"

namespace mixed_gemm {

int launch_grouped_plain(const GroupedGemmProblem& problem, const GroupedWorkload& work);

}  // namespace mixed_gemm
