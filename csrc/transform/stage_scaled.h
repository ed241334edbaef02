// The operands of a scaled GEMM as its kernels take them.
#pragma once
#include "grid/run_context.h"
#include "grid/run_split.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// Stages the rows of both operands and fills in how K is shared out. apart: rows may not overlap. k
// may be 0, then there are no rows.
Status stage_scaled(ScaledMmProblem& problem, const Choice& choice, const TileConfig& tile,
                    bool apart, const RunContext& context, Work& work);

}  // namespace mixed_gemm
