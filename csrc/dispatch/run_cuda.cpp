#include "dispatch/run.h"

#include "dispatch/families.h"
#include "dispatch/problems.h"

namespace mixed_gemm {
namespace {

template <typename Problem, typename... Members>
Status run_member(FamilyList<Members...>, const Choice& c, const Problem& problem,
                  const RunContext& context) {
  constexpr Status (*kRun[])(const Choice&, const Problem&, const RunContext&) = {&Members::run...};
  return kRun[c.family](c, problem, context);
}

}  // namespace

Status Pointwise::run(const Choice&, const ConvProblem&, const RunContext& context) {
  return context.pointwise();
}

template <typename Problem>
Status run(const Choice& c, const Problem& problem, const RunContext& context) {
  return run_member(typename FamiliesOf<Problem>::List(), c, problem, context);
}

#define MIXED_GEMM_RUN_OF(Problem) \
  template Status run(const Choice&, const Problem&, const RunContext&);
MIXED_GEMM_PROBLEMS(MIXED_GEMM_RUN_OF)

}  // namespace mixed_gemm
