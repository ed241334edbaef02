// The type of a launcher in every family whose rows belong to experts.
#pragma once
#include "grid/work.h"
#include "grouped/row_blocks.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

struct GroupedWorkload : Work {
  GroupedRows rows;
  RowBlocks row_blocks;     // null where thread blocks find their rows
  int most_row_blocks = 0;  // that there can be
};

// problem: its activations and scales as kernels read them.
using GroupedLaunch = int (*)(const GroupedGemmProblem& problem,
                              const GroupedWorkload& work);  // returns a cudaError_t

}  // namespace mixed_gemm
