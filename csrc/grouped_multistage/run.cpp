#include "grouped/run.h"
#include "grid/device_query.h"
#include "grouped_multistage/family.h"
#include "grouped_multistage/launchers.h"

namespace mixed_gemm {

Status GroupedMultistage::run(const Choice& c, const GroupedGemmProblem& problem,
                              const RunContext& context) {
  GroupedGemmProblem p = problem;
  const TileConfig& tile = kTileConfigs[kGroupedTileRows[c.row]];
  const int mode = multistage_mode(p.gemm.scheme, p.gemm.k);
  GroupedWorkload work;
  const bool lists = lists_rows(p, tile.m, ceil_div(p.gemm.n, tile.n), context.device);
  const Status status = prepare_grouped(
      c, {tile.m, /*least_stride=*/0, is_scaled(kMultistageModes[mode]), lists}, context, p, work);
  if (!status.ok()) return status;
  const auto& launchers = grouped_multistage_launchers(p.gemm.element, p.gemm.scheme.weight, mode);
  return cuda_status(launchers[c.row](p, work), "launching the grouped GEMM");
}

}  // namespace mixed_gemm
