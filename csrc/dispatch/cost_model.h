// First heuristic: enumerate the legal candidates, predict microseconds for each, take the least.
#pragma once
#include <vector>

#include "core/device_info.h"
#include "dispatch/candidate.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Bandwidth and rates of a GPU by compute capability, where the caller could not measure them.
DeviceInfo with_default_rates(DeviceInfo device);

// What the library's dense 16-bit GEMM reaches.
double dense_tflops(const DeviceInfo& device);

double predict_us(const Candidate& candidate, const GemmProblem& problem, const DeviceInfo& device);

// Legal candidates, fastest prediction first. Never empty for a device that why_not_device accepts.
std::vector<Candidate> ranked_candidates(const GemmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
