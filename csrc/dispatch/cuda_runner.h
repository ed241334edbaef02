// Runs a skinny or multistage candidate on the current device: brings operands into form, finds
// workspace, launches.
#pragma once
#include <functional>

#include "core/device_info.h"
#include "core/status.h"
#include "dispatch/candidate.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Device memory that lives at least until the launched work is done (ops/ passes torch's caching
// allocator).
using Allocate = std::function<void*(int64_t bytes)>;

// The CUDA devices of this process, or why there are none (no driver, say).
Status cuda_device_count(int& count);

// Queried once per device.
const DeviceInfo& cuda_device_info(int device);

Status run_fused(const Candidate& candidate, const GemmProblem& problem, const Allocate& allocate,
                 void* stream);

Status cuda_status(int error, const char* what);

}  // namespace mixed_gemm
