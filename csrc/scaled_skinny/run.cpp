#include "scaled_skinny/family.h"

#include "grid/device_query.h"
#include "scaled_skinny/launchers.h"
#include "transform/stage_operands.h"

namespace mixed_gemm {
namespace {

const ScaledSkinnyLaunchers* launchers_of(OperandType operand) {
  if (operand == OperandType::kInt8) return &int8_skinny_launchers();
#if defined(MIXED_GEMM_WITH_FP8)
  return &fp8_skinny_launchers();
#else
  return nullptr;  // why_not_operand refuses
#endif
}

}  // namespace

Status ScaledSkinny::run(const Choice& c, const ScaledMmProblem& problem,
                         const RunContext& context) {
  ScaledMmProblem p = problem;
  Status status = stage_rows(p.a, p.lda, p.m, p.k, /*apart=*/false, context);
  if (status.ok()) status = stage_rows(p.b, p.ldb, p.n, p.k, /*apart=*/false, context);
  if (!status.ok()) return status;
  Work work;
  work.pdl = context.device.pdl();
  work.stream = context.stream;
  return cuda_status((*launchers_of(p.operand))[c.row](p, work), "launching the GEMM");
}

}  // namespace mixed_gemm
