#include "multistage/family.h"

#include "grid/device_query.h"
#include "grid/run_split.h"
#include "multistage/launchers.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status Multistage::run(const Choice& c, const GemmProblem& problem, const RunContext& context) {
  const TileConfig& tile = kTileConfigs[c.row];
  const int mode = multistage_mode(problem.scheme, problem.k);
  GemmProblem p = problem;
  Status status = stage_gemm(p, /*least_stride=*/0, context);
  if (!status.ok()) return status;
  Work work;
  status = share_out(c, tile, p.m, p.n, ceil_div(p.k, work_step_k(tile)), context, work);
  if (!status.ok()) return status;
  status = cuda_status(multistage_launchers(p.element, p.scheme.weight, mode)[c.row](p, work),
                       "launching the GEMM");
  if (!status.ok()) return status;
  const ReducedColumns columns = reduced_columns(p, is_scaled(kMultistageModes[mode]));
  return reduce_partials(work, {p.element, p.m, p.n, columns, p.bias, p.activation, p.d}, context);
}

}  // namespace mixed_gemm
