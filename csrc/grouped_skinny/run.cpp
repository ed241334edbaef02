#include "grouped/run.h"
#include "grid/device_query.h"
#include "grouped_skinny/family.h"
#include "grouped_skinny/launchers.h"

namespace mixed_gemm {

Status GroupedSkinny::run(const Choice& c, const GroupedGemmProblem& problem,
                          const RunContext& context) {
  GroupedGemmProblem p = problem;
  const SkinnyConfig& row = kSkinnyConfigs[kGroupedSkinnyRows[c.row]];
  const int mode = grouped_skinny_mode(c.row, p.gemm.scheme, p.gemm.k);
  GroupedWorkload work;
  const int tile = 8 * row.m_tiles;
  const int64_t blocks_of_rows = ceil_div(p.gemm.n, 16 * row.n_tiles) * c.slices;
  const bool lists = lists_rows(p, tile, blocks_of_rows, context.device);
  const Status status = prepare_grouped(
      c, {tile, /*least_stride=*/0, stages_scales(row, mode), lists}, context, p, work);
  if (!status.ok()) return status;
  const auto& launchers = grouped_skinny_launchers(p.gemm.element, p.gemm.scheme.weight, mode);
  return cuda_status(launchers[c.row](p, work), "launching the grouped GEMM");
}

}  // namespace mixed_gemm
