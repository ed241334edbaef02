#include "scaled/family.h"

#include "grid/device_query.h"
#include "scaled/launchers.h"
#include "transform/stage_scaled.h"

namespace mixed_gemm {
namespace {

struct Kernels {
  const ScaledLaunchers* launchers;  // null where why_not_operand refuses
  int (*reduce)(const ScaledMmProblem&, const Work&);
};

Kernels kernels_of(OperandType operand) {
  if (operand == OperandType::kInt8) return {&int8_scaled_launchers(), launch_int8_scaled_reduce};
#if defined(MIXED_GEMM_WITH_FP8)
  return {&fp8_scaled_launchers(), launch_fp8_scaled_reduce};
#else
  return {nullptr, nullptr};
#endif
}

}  // namespace

Status Scaled::run(const Choice& c, const ScaledMmProblem& problem, const RunContext& context) {
  ScaledMmProblem p = problem;
  Work work;
  if (p.block_k > 0) {  // no block, since K is 0: what is left is the bias
    work.slices = 0;
    work.pdl = context.device.pdl();
    work.stream = context.stream;
    return cuda_status(kernels_of(p.operand).reduce(p, work), "storing the bias");
  }
  Status status = stage_scaled(p, c, kScaledTileConfigs[c.row], /*apart=*/false, context, work);
  if (!status.ok()) return status;
  const Kernels kernels = kernels_of(p.operand);
  status = cuda_status((*kernels.launchers)[c.row](p, work), "launching the GEMM");
  if (!status.ok() || work.split != SplitK::kParallel) return status;
  return cuda_status(kernels.reduce(p, work), "reducing partial sums");
}

}  // namespace mixed_gemm
