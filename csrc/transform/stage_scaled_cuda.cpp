#include "transform/stage_scaled.h"

#include "mainloop/direct_stage.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status stage_scaled(ScaledMmProblem& p, const Choice& c, const TileConfig& tile, bool apart,
                    const RunContext& context, Work& work) {
  Status status;
  if (p.k > 0) status = stage_rows(p.a, p.lda, p.m, p.k, apart, context);
  if (p.k > 0 && status.ok()) status = stage_rows(p.b, p.ldb, p.n, p.k, apart, context);
  if (!status.ok()) return status;
  return share_out(c, tile, p.m, p.n, ceil_div(p.k, kScaledTileK), context, work);
}

}  // namespace mixed_gemm
