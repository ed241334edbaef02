#include "scaled_wgmma/family.h"

#include "grid/device_query.h"
#include "grid/scaled_reduce.h"
#include "scaled_wgmma/launchers.h"
#include "transform/stage_scaled.h"

namespace mixed_gemm {

#if defined(MIXED_GEMM_WITH_WGMMA)
namespace {

struct Kernels {
  const WgmmaScaledLaunchers& launchers;
  int (*reduce)(const ScaledMmProblem&, const Work&);
};

Kernels kernels_of(const ScaledMmProblem& p) {
  if (p.operand == OperandType::kInt8) return {wgmma_int8_launchers(), launch_int8_scaled_reduce};
  return {p.block_k > 0 ? wgmma_fp8_blocks_launchers() : wgmma_fp8_launchers(),
          launch_fp8_scaled_reduce};
}

}  // namespace
#endif

Status ScaledWgmma::run(const Choice& c, const ScaledMmProblem& problem,
                        const RunContext& context) {
#if defined(MIXED_GEMM_WITH_WGMMA)
  ScaledMmProblem p = problem;
  Work work;
  // TMA takes no rows that overlap.
  Status status = stage_scaled(p, c, kWgmmaScaledTileConfigs[c.row], /*apart=*/true, context, work);
  if (!status.ok()) return status;
  const Kernels kernels = kernels_of(p);
  status = cuda_status(kernels.launchers[c.row](p, work), "launching the GEMM");
  if (!status.ok() || work.split != SplitK::kParallel) return status;
  return cuda_status(kernels.reduce(p, work), "reducing partial sums");
#else
  static_cast<void>(c), static_cast<void>(problem), static_cast<void>(context);
  return Status("this build has no wgmma kernels");  // why_not lets nobody come here
#endif
}

}  // namespace mixed_gemm
