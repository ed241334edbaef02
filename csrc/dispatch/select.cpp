#include "dispatch/select.h"

#include <cstdio>
#include <map>
#include <tuple>

#include "dispatch/cost_model.h"
#include "dispatch/support.h"
#include "dispatch/tuned_table.h"

namespace mixed_gemm {
namespace {

constexpr size_t kMaxRemembered = 4096;  // problems; a server sees a few hundred

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
  if (why_not.empty()) return {tuned->candidate, tuned_reason(*tuned)};
  return {ranked.front(),
          std::string(predicted) + "; tuned " + config_name(tuned->candidate) + " " + why_not};
}

Candidate select_cached(const GemmProblem& p, const DeviceInfo& device) {
  // All that why_not_candidate and the cost model read.
  using Key = std::tuple<int64_t, int64_t, int64_t, int, int, int64_t, int, int64_t, int, int, int>;
  thread_local std::map<Key, Candidate> remembered;
  thread_local int generation = -1;
  if (generation != tuned_table_generation() || remembered.size() >= kMaxRemembered) {
    generation = tuned_table_generation();
    remembered.clear();
  }
  const Key key{p.m,
                p.n,
                p.k,
                static_cast<int>(p.element),
                p.scheme.bits,
                p.scheme.group_size,
                static_cast<int>(p.scheme.zero_mode),
                p.scale_stride,
                device.sm,
                device.sm_count,
                device.smem_bytes};
  const auto found = remembered.find(key);
  if (found != remembered.end()) return found->second;
  const Candidate chosen = select(p, device, ranked_candidates(p, device)).candidate;
  remembered.emplace(key, chosen);
  return chosen;
}

}  // namespace mixed_gemm
