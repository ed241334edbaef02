#include "grid/device_query.h"

#include <cuda_runtime_api.h>
#include <array>
#include <mutex>
#include <string>

namespace mixed_gemm {
namespace {

constexpr int kMaxDevices = 64;

DeviceInfo query_device(int device) {
  const auto attribute = [device](cudaDeviceAttr which) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, device);
    return value;
  };
  DeviceInfo info;
  info.sm = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
            attribute(cudaDevAttrComputeCapabilityMinor);
  info.sm_count = attribute(cudaDevAttrMultiProcessorCount);
  info.smem_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  // Two transfers per clock; 90 % of the pin rate is what a copy reaches.
  info.dram_gb_per_s = 0.9 * 2e-6 * attribute(cudaDevAttrMemoryClockRate) *
                       attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  return with_default_rates(info);
}

}  // namespace

Status cuda_status(int error, const char* what) {
  if (error == cudaSuccess) return Status();
  return Status(std::string(what) +
                " failed: " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

Status cuda_device_count(int& count) {
  count = 0;
  return cuda_status(cudaGetDeviceCount(&count), "counting the CUDA devices");
}

const DeviceInfo& cuda_device_info(int device) {
  static std::array<DeviceInfo, kMaxDevices> infos;
  static std::array<std::once_flag, kMaxDevices> once;
  std::call_once(once.at(device), [device] { infos[device] = query_device(device); });
  return infos[device];
}

}  // namespace mixed_gemm
