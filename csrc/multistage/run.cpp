#include "multistage/family.h"

#include "grid/device_query.h"
#include "multistage/launchers.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status Multistage::run(const Choice& c, const GemmProblem& p, const RunContext& context) {
  const TileConfig& tile = kTileConfigs[c.row];
  const ScaleMode mode = scale_mode(p.scheme, p.k);
  GemmArgs args;
  Status status = stage_gemm(p, c, tile, /*least_stride=*/0,
                             context.device.sm_count * tile.min_blocks, context, args);
  if (!status.ok()) return status;
  status = cuda_status(multistage_launchers(p.element, p.scheme.bits, mode)[c.row](args),
                       "launching the GEMM");
  if (!status.ok()) return status;
  return finish_gemm(p, args, mode == ScaleMode::kPerChannel, context);
}

}  // namespace mixed_gemm
