// The only statement of what is accepted. Error texts, the cost model, plan(), why_not() and the
// tests all call these.
#pragma once
#include <string>
#include <vector>

#include "core/build.h"
#include "core/device_info.h"
#include "dispatch/candidate.h"
#include "problem/gemm.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm {

// Reasons why no backend runs this shape and scheme; group_size as the user gave it (-1: per
// channel). Empty: accepted.
std::vector<std::string> why_not_problem(int64_t m, int64_t n, int64_t k, int64_t bits,
                                         int64_t group_size);

// Reasons why no backend runs this 8-bit GEMM. Empty: accepted.
std::vector<std::string> why_not_scaled_mm(int64_t m, int64_t n, int64_t k, OperandType operand);

// The accepted values nearest to the given ones.
int64_t nearest_bits(int64_t bits);
int64_t nearest_group_size(int64_t k, int64_t group_size);

// Reason why a GPU is not served at all, or empty.
std::string why_not_device(const DeviceInfo& device);

// Reason why the device, or this build, has no wgmma kernels; or empty.
std::string why_not_wgmma(const DeviceInfo& device, const Build& build = this_build());
// The same of a wgmma kernel that is to split K so.
std::string why_not_wgmma_split(SplitK split, int64_t k);

// Reason why a multistage or wgmma tile cannot run the problem so, or empty. smem: of a block.
std::string why_not_tile(const TileChoice& choice, const TileConfig& tile, int smem,
                         const GemmProblem& problem, const DeviceInfo& device);

// Reason why this candidate cannot run the problem on the device, or empty.
std::string why_not_candidate(const Candidate& candidate, const GemmProblem& problem,
                              const DeviceInfo& device);

}  // namespace mixed_gemm
