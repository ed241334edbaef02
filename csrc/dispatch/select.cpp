#include "dispatch/select.h"

#include <cstdio>

#include "dispatch/cost_model.h"
#include "dispatch/remembered.h"
#include "dispatch/support.h"
#include "dispatch/tuned_table.h"

namespace mixed_gemm {
namespace {

std::string tuned_reason(const TunedPoint& point) {
  char text[96];
  std::snprintf(text, sizeof(text), "tuned: the fastest measured at M = %lld, %.2f us",
                static_cast<long long>(point.m), point.us);
  return text;
}

}  // namespace

Selection select(const GemmProblem& problem, const DeviceInfo& device,
                 const std::vector<Candidate>& ranked) {
  const char* predicted = "least time predicted by the cost model";
  const std::optional<TunedPoint> tuned = find_tuned(problem, device);
  if (!tuned) return {ranked.front(), predicted};
  const std::string why_not = why_not_candidate(tuned->candidate, problem, device);
  if (why_not.empty()) {
    // Measured with the table's M, which may be another one: who compares it with other ways to do
    // the same needs the time that the model predicts for this problem.
    Candidate chosen = tuned->candidate;
    chosen.predicted_us = predict_us(chosen, problem, device);
    return {chosen, tuned_reason(*tuned)};
  }
  return {ranked.front(),
          std::string(predicted) + "; tuned " + config_name(tuned->candidate) + " " + why_not};
}

Candidate select_cached(const GemmProblem& problem, const DeviceInfo& device) {
  return remembered<Candidate>(problem, device, [](const GemmProblem& p, const DeviceInfo& d) {
    return select(p, d, ranked_candidates(p, d)).candidate;
  });
}

}  // namespace mixed_gemm
