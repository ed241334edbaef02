// A scaled GEMM as its kernels take it.
#pragma once
#include "grid/run_context.h"
#include "grid/run_split.h"
#include "grid/scaled_mm_args.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// Rows of both operands in the form that kernels read, and a way to share out K. apart: rows may
// not overlap; k may be 0, then there are none.
Status stage_scaled(const ScaledMmProblem& problem, const Choice& choice, const TileConfig& tile,
                    bool apart, const RunContext& context, ScaledMmArgs& args);

// What the second kernel of a parallel split takes.
ScaledReduceArgs scaled_reduce_args(const ScaledMmArgs& args);

}  // namespace mixed_gemm
