// The choice of a configuration: measured where it was tuned, predicted elsewhere.
#pragma once
#include <string>
#include <vector>

#include "dispatch/candidate.h"

namespace mixed_gemm {

struct GemmProblem;
struct DeviceInfo;

struct Selection {
  Candidate candidate;
  std::string reason;  // in words, for plan()
};

// ranked: ranked_candidates(problem, device), which plan() has anyway.
Selection select(const GemmProblem& problem, const DeviceInfo& device,
                 const std::vector<Candidate>& ranked);

// The same candidate, remembered: ranking costs as much as a small kernel runs.
Candidate select_cached(const GemmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
