#include "ops/grouped/offsets.h"

#include "ops/errors.h"

namespace mixed_gemm::grouped {

void check_offsets(const char* op, const GroupedGemmProblem& problem) {
  int64_t before = 0;
  for (int64_t e = 0; e < problem.experts; ++e) {
    const int64_t end = problem.offs[e];
    if (end_of_expert(end, before, problem.gemm.m) != end) {
      wrong_value(op, {"offs", joined("not fall, and be in 0..M, M=", problem.gemm.m),
                       joined(end, " at index (", e, ",)"),
                       e == 0 ? "" : joined("the rows of expert ", e - 1, " end at ", before)});
    }
    before = end;
  }
}

}  // namespace mixed_gemm::grouped
