#include "wgmma/family.h"

#include "grid/device_query.h"
#include "transform/stage_operands.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {

Status Wgmma::run(const Choice& c, const GemmProblem& p, const RunContext& context) {
  const TileConfig& tile = kWgmmaTileConfigs[c.row];
  const WgmmaMode mode = wgmma_mode(p.scheme, p.k);
  GemmArgs args;
  // The copy engine takes no rows that overlap.
  Status status = stage_gemm(p, c, tile, /*least_stride=*/p.k,
                             context.device.sm_count * wgmma_blocks(tile, mode), context, args);
  if (!status.ok()) return status;
  status = cuda_status(wgmma_launchers(p.element, p.scheme.bits, mode)[c.row](args),
                       "launching the GEMM");
  if (!status.ok()) return status;
  return finish_gemm(p, args, mode == WgmmaMode::kPerChannel, context);
}

}  // namespace mixed_gemm
