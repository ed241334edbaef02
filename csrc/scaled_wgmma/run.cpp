#include "scaled_wgmma/family.h"

#include "grid/device_query.h"
#include "grid/scaled_reduce.h"
#include "scaled_wgmma/launchers.h"
#include "transform/stage_scaled.h"

namespace mixed_gemm {

Status ScaledWgmma::run(const Choice& c, const ScaledMmProblem& problem,
                        const RunContext& context) {
#if defined(MIXED_GEMM_WITH_WGMMA)
  ScaledMmProblem p = problem;
  Work work;
  // The copy engine takes no rows that overlap.
  Status status = stage_scaled(p, c, kWgmmaInt8TileConfigs[c.row], /*apart=*/true, context, work);
  if (!status.ok()) return status;
  status = cuda_status(wgmma_int8_launchers()[c.row](p, work), "launching the GEMM");
  if (!status.ok() || work.split != SplitK::kParallel) return status;
  return cuda_status(launch_int8_scaled_reduce(p, work), "reducing partial sums");
#else
  static_cast<void>(c), static_cast<void>(problem), static_cast<void>(context);
  return Status("this build has no wgmma kernels");  // why_not lets nobody come here
#endif
}

}  // namespace mixed_gemm
