// The GPUs of this process.
#pragma once
#include "core/device.h"
#include "core/status.h"

namespace mixed_gemm {

Status cuda_status(int error, const char* what);

// The CUDA devices of this process, or why there are none (no driver, or one that is too old).
Status cuda_device_count(int& count);

// The device, queried once per process.
const DeviceInfo& cuda_device_info(int device);

}  // namespace mixed_gemm
