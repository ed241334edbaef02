// Offsets of rows by expert, read on the host.
#pragma once
#include "problem/grouped_gemm.h"

namespace mixed_gemm::grouped {

// Refuses offsets that fall, or leave the rows; the text has the first of them and its index.
void check_offsets(const char* op, const GroupedGemmProblem& problem);

}  // namespace mixed_gemm::grouped
