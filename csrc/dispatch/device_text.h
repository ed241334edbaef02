// A device as text, which the plan ops take and _device() gives for a GPU of this machine.
#pragma once
#include <optional>
#include <string>

#include "core/device.h"

namespace mixed_gemm {

// "cuda:sm=90,sms=132,smem=232448,gbs=4425": compute capability, multiprocessors, bytes of shared
// memory a block may opt in to, memory bandwidth in GB/s.
std::string device_text(const DeviceInfo& device);

// Reads "cpu", which leaves `device` empty, or the text above, of which ",gbs=..." may be missing:
// dram_gb_per_s is 0 then. Returns why it takes no other text, or "".
std::string parse_device_text(const std::string& text, std::optional<DeviceInfo>& device);

}  // namespace mixed_gemm
