#include "grouped/run.h"
#include "grid/device_query.h"
#include "grouped_plain/config.h"
#include "grouped_plain/family.h"
#include "grouped_plain/launchers.h"

namespace mixed_gemm {

Status GroupedPlain::run(const Choice& c, const GroupedGemmProblem& problem,
                         const RunContext& context) {
  GroupedGemmProblem p = problem;
  GroupedWorkload work;
  const Status status = list_rows(c, kPlainRows, context, p, work);
  if (!status.ok()) return status;
  return cuda_status(launch_grouped_plain(p, work), "launching the grouped GEMM");
}

}  // namespace mixed_gemm
