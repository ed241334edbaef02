// The workspace of a kernel whose blocks share out K, and the kernel behind it.
#pragma once
#include "core/choice.h"
#include "grid/grid.h"
#include "grid/run_context.h"
#include "grid/work.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Makes `work` of a choice. parts: parts of K that can be shared out, for each tile of the output.
Status share_out(const Choice& choice, const TileConfig& tile, int64_t m, int64_t n, int64_t parts,
                 const RunContext& context, Work& work, bool zero_flags = true);

// The factors that multiply the sums of columns behind all groups. scaled: whether the mainloop had
// scales.
inline ReducedColumns reduced_columns(const GemmProblem& p, bool scaled) {
  return {scaled ? nullptr : p.scales, p.factor};
}

// Launches the second kernel of a parallel split; does nothing where K was not split so.
Status reduce_partials(const Work& work, const ReducedOutput& output, const RunContext& context);

}  // namespace mixed_gemm
