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

// A driver serves the CUDA runtimes of its generation and of those before.
std::string why_not_driver() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const auto text = [](int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  };
  return "the CUDA kernels of this build need an NVIDIA driver of CUDA " +
         text(runtime / 1000 * 1000) + " or newer, and " +
         (driver > 0 ? "this machine's is of CUDA " + text(driver) : "this machine has none") +
         "; install a newer driver, or build with the nvcc of an older CUDA (12.0 is the oldest), "
         "or use the CPU";
}

}  // namespace

Status cuda_status(int error, const char* what) {
  if (error == cudaSuccess) return Status();
  return Status(std::string(what) +
                " failed: " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

Status cuda_device_count(int& count) {
  count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) return Status(why_not_driver());
  return cuda_status(error, "counting the CUDA devices");
}

const DeviceInfo& cuda_device_info(int device) {
  static std::array<DeviceInfo, kMaxDevices> infos;
  static std::array<std::once_flag, kMaxDevices> once;
  std::call_once(once.at(device), [device] { infos[device] = query_device(device); });
  return infos[device];
}

}  // namespace mixed_gemm
