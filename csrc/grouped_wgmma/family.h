// The wgmma kernels for rows of experts: blocks stay and take the tiles of a list that is made on
// the device.
#pragma once
#include "core/family.h"
#include "problem/grouped_gemm.h"

namespace mixed_gemm {

struct GroupedWgmma {
  static const Family<GroupedGemmProblem> plan;
  static Run<GroupedGemmProblem> run;
};

}  // namespace mixed_gemm
