// A scaled GEMM as its kernels take it.
#pragma once
#include "grid/run_context.h"
#include "grid/run_split.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// Rows of both operands in the form that kernels read, and a way to share out K. apart: rows may
// not overlap; k may be 0, then there are none.
Status stage_scaled(ScaledMmProblem& problem, const Choice& choice, const TileConfig& tile,
                    bool apart, const RunContext& context, Work& work);

}  // namespace mixed_gemm
