#include "dispatch/run.h"

#include "dispatch/families.h"

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

template Status run(const Choice&, const GemmProblem&, const RunContext&);
template Status run(const Choice&, const ScaledMmProblem&, const RunContext&);
template Status run(const Choice&, const BlockGemmProblem&, const RunContext&);
template Status run(const Choice&, const ConvProblem&, const RunContext&);
template Status run(const Choice&, const ConvInt8Problem&, const RunContext&);

}  // namespace mixed_gemm
