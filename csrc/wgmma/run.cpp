#include "wgmma/family.h"

#include "grid/device_query.h"
#include "grid/run_split.h"
#include "transform/stage_operands.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {

Status Wgmma::run(const Choice& c, const GemmProblem& problem, const RunContext& context) {
  const TileConfig& tile = kWgmmaTileConfigs[c.row];
  const int mode = wgmma_mode(problem.scheme, problem.k);
  GemmProblem p = problem;
  // TMA takes no rows that overlap.
  Status status = stage_gemm(p, /*least_stride=*/p.k, context);
  if (!status.ok()) return status;
  Work work;
  status = share_out(c, tile, p.m, p.n, ceil_div(p.k, work_step_k(tile)), context, work);
  if (!status.ok()) return status;
  work.resident = context.device.sm_count * wgmma_blocks(tile, p.scheme.weight, kWgmmaModes[mode]);
  status = cuda_status(wgmma_launchers(p.element, p.scheme.weight, mode)[c.row](p, work),
                       "launching the GEMM");
  if (!status.ok()) return status;
  const ReducedColumns columns = reduced_columns(p, is_scaled(kWgmmaModes[mode]));
  return reduce_partials(work, {p.element, p.m, p.n, columns, p.bias, p.activation, p.d}, context);
}

}  // namespace mixed_gemm
