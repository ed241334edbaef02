#include "grouped/run.h"
#include "grid/device_query.h"
#include "grouped_wgmma/family.h"
#include "grouped_wgmma/launchers.h"

namespace mixed_gemm {

Status GroupedWgmma::run(const Choice& c, const GroupedGemmProblem& problem,
                         const RunContext& context) {
  GroupedGemmProblem p = problem;
  const TileConfig& tile = kWgmmaTileConfigs[kGroupedWgmmaRows[c.row]];
  const int mode = wgmma_mode(p.gemm.scheme, p.gemm.k);
  GroupedWorkload work;
  // TMA takes no rows that overlap.
  const Status status =
      prepare_grouped(c,
                      {tile.m, /*least_stride=*/p.gemm.k, is_scaled(kWgmmaModes[mode]),
                       /*lists=*/true},
                      context, p, work);
  if (!status.ok()) return status;
  work.resident =
      context.device.sm_count * wgmma_blocks(tile, p.gemm.scheme.weight, kWgmmaModes[mode]);
  const auto& launchers = grouped_wgmma_launchers(p.gemm.element, p.gemm.scheme.weight, mode);
  return cuda_status(launchers[c.row](p, work), "launching the grouped GEMM");
}

}  // namespace mixed_gemm
