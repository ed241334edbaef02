#include "skinny/family.h"

#include "grid/device_query.h"
#include "skinny/launchers.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {

Status Skinny::run(const Choice& c, const GemmProblem& problem, const RunContext& context) {
  GemmProblem p = problem;
  Status status = stage_activations(p, /*least_stride=*/0, context);
  if (!status.ok()) return status;
  const SkinnyConfig& row = kSkinnyConfigs[c.row];
  const int mode = skinny_mode(row, p.scheme, p.m, p.k);
  if (stages_scales(row, mode)) {
    status =
        stage_scales(p.element, num_groups(p), p.n, p.scales, p.zeros, p.scale_stride, context);
    if (!status.ok()) return status;
  }
  Work work;
  work.split = c.split;
  work.slices = c.slices;
  work.pdl = context.device.pdl();
  work.stream = context.stream;
  return cuda_status(skinny_launchers(p.element, p.scheme.weight, mode)[c.row](p, work),
                     "launching the GEMM");
}

}  // namespace mixed_gemm
