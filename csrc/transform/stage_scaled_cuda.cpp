#include "transform/stage_scaled.h"

#include "mainloop/direct_stage.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status stage_scaled(const ScaledMmProblem& p, const Choice& c, const TileConfig& tile, bool apart,
                    const RunContext& context, ScaledMmArgs& args) {
  args.m = static_cast<int>(p.m);
  args.n = static_cast<int>(p.n);
  args.k = static_cast<int>(p.k);
  args.a = p.a;
  args.a_stride = p.lda;
  args.b = p.b;
  args.b_stride = p.ldb;
  args.epilogue = epilogue_args(p);
  args.d = p.d;
  args.resident = context.device.sm_count * tile.min_blocks;
  args.early_start = context.device.early_start();
  args.stream = context.stream;
  Status status;
  if (p.k > 0) status = stage_rows(args.a, args.a_stride, p.m, p.k, apart, context);
  if (p.k > 0 && status.ok()) status = stage_rows(args.b, args.b_stride, p.n, p.k, apart, context);
  if (!status.ok()) return status;
  Shares shares;
  status = share_out(c, tile, p.m, p.n, ceil_div(p.k, kScaledTileK), context, shares);
  args.split = shares.split;
  args.slices = shares.slices;
  args.partials = shares.partials;
  args.flags = shares.flags;
  return status;
}

ScaledReduceArgs scaled_reduce_args(const ScaledMmArgs& args) {
  ScaledReduceArgs reduce;
  reduce.epilogue = args.epilogue;
  reduce.partials = args.partials;
  reduce.partial_stride = partial_stride(args.n);
  reduce.slices = args.slices;
  reduce.m = args.m;
  reduce.n = args.n;
  reduce.d = args.d;
  reduce.early_start = args.early_start;
  reduce.stream = args.stream;
  return reduce;
}

}  // namespace mixed_gemm
