// What kernels that the copy engine feeds cannot do, whatever the family.
#pragma once
#include <cstdint>
#include <string>

#include "core/build.h"
#include "core/device.h"
#include "core/split.h"

namespace mixed_gemm {

// Reason why the device, or this build, has no wgmma kernels; or empty.
std::string why_not_wgmma(const DeviceInfo& device, const Build& build = this_build());
// The same of a wgmma kernel that is to split K so.
std::string why_not_wgmma_split(SplitK split, int64_t k);

}  // namespace mixed_gemm
