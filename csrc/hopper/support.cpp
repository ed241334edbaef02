#include "hopper/support.h"

namespace mixed_gemm {

std::string why_not_wgmma(const DeviceInfo& device, const Build& build) {
  if (device.sm != 90) {
    return "needs wgmma, which compute capability 9.0 has alone; this device has " +
           std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10);
  }
  return build.wgmma ? "" : "is not in this build: it was made for architectures without 9.0";
}

std::string why_not_wgmma_split(SplitK split, int64_t k) {
  if (k == 0) return "copies boxes of the operands, and K = 0 has none";
  return split == SplitK::kCluster ? "has no clusters" : "";
}

}  // namespace mixed_gemm
