#include "core/device.h"

#include <cstdlib>

namespace mixed_gemm {
namespace {

struct Rates {
  int sm;
  double dram_gb_per_s, mma_tflops, dense_tflops;
};
// Figures of the vendor, but for the mma rates of sm_90 and its dense (wgmma) rate, which were
// measured on an H200.
constexpr Rates kRates[] = {{80, 1555, 312, 250}, {86, 768, 150, 120},    {89, 864, 330, 165},
                            {90, 4400, 640, 700}, {100, 7000, 640, 1500}, {120, 1792, 419, 210}};

const Rates& rates_of(int sm) {
  const Rates* best = &kRates[0];
  for (const Rates& r : kRates) {
    if (r.sm <= sm) best = &r;
  }
  return *best;
}

std::string capability(int sm) { return std::to_string(sm / 10) + "." + std::to_string(sm % 10); }

// Machine code runs on its generation from its own GPU on: "80" on 8.6 as well, "90a" on 9.0 alone.
bool runs(int code, bool alone, int sm) {
  return code == sm || (!alone && code / 10 == sm / 10 && code < sm);
}

// Reason why nothing in "80,86,90a" runs on the GPU, or empty.
std::string why_no_code(const char* archs, int sm) {
  std::string built;
  while (*archs) {
    char* end = nullptr;
    const auto code = static_cast<int>(std::strtol(archs, &end, 10));
    if (runs(code, *end == 'a', sm)) return "";
    built += (built.empty() ? "" : ", ") + capability(code);
    while (*end && *end != ',') ++end;
    archs = *end ? end + 1 : end;
  }
  if (built.empty()) return "";
  return "this build has machine code for compute capability " + built + ", and this GPU has " +
         capability(sm) +
         ", which runs none of it; build with TORCH_CUDA_ARCH_LIST=" + capability(sm) +
         ", or move the tensors to the CPU";
}

constexpr int kLeastSmem = 99 * 1024;  // what 8.6, 8.9 and 12.0 have: every family fits it

}  // namespace

DeviceInfo with_default_rates(DeviceInfo device) {
  const Rates& rates = rates_of(device.sm);
  if (device.dram_gb_per_s <= 0) device.dram_gb_per_s = rates.dram_gb_per_s;
  if (device.mma_tflops <= 0) device.mma_tflops = rates.mma_tflops;
  return device;
}

double dense_tflops(const DeviceInfo& device) { return rates_of(device.sm).dense_tflops; }

std::string why_not_device(const DeviceInfo& device, const Build& build) {
  if (device.sm < 80) {
    return "the CUDA kernels need compute capability 8.0 or newer (cp.async, bf16 mma), this GPU "
           "has " +
           capability(device.sm) + "; move the tensors to the CPU";
  }
  const std::string no_code = why_no_code(build.archs, device.sm);
  if (!no_code.empty()) return no_code;
  if (device.smem_bytes >= kLeastSmem) return "";
  return "the CUDA kernels need " + std::to_string(kLeastSmem) +
         " bytes of shared memory for a block, as every GPU of compute capability 8.0 or newer "
         "has, this GPU has " +
         std::to_string(device.smem_bytes);
}

std::string why_not_smem(int bytes, const DeviceInfo& device) {
  if (bytes <= device.smem_bytes) return "";
  return "needs " + std::to_string(bytes) + " bytes of shared memory, the device has " +
         std::to_string(device.smem_bytes);
}

std::string why_not_clusters(const DeviceInfo& device) {
  if (device.sm >= 90) return "";
  return "needs thread block clusters, compute capability 9.0; this device has " +
         capability(device.sm);
}

}  // namespace mixed_gemm
