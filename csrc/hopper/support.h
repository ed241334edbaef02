// Reasons why a kernel fed by TMA cannot run a problem, whatever the family.
#pragma once
#include <cstdint>
#include <string>

#include "core/build.h"
#include "core/device.h"
#include "core/split.h"

namespace mixed_gemm {

// Reason why the device, or this build, has no wgmma kernels; or empty.
std::string why_not_wgmma(const DeviceInfo& device, const Build& build = this_build());
// Reason why a wgmma kernel cannot split K so, or empty.
std::string why_not_wgmma_split(SplitK split, int64_t k);

}  // namespace mixed_gemm
