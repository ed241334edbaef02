// A GPU as the heuristic and why_not need to know it. Filled by grid/device_query.h, or by hand in
// tests.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>

#include "core/build.h"

namespace mixed_gemm {

// A GPU whose kernels may be launched with PDL (grid/pdl.cuh); sms is 0 for another one.
//
// Blocks launched so find some SMs free and others not, and crowd where there is room; some SMs
// then have twice the work of others. So a block asks for so much shared memory that an SM has room
// for an even share only. us, with the second kernel of a parallel split:
//
//                             neither     second         both, as they come         even
//   4096 x 14336, 128 rows    30.2        32.6           32.7                       29.0
//   4096 x 4096, 256 rows     20.1        20.6           20.2                       19.2
//   8192 x 8192, 16 rows      18.6        18.0           17.6                       17.4
struct Pdl {
  static constexpr int kReservedSmem = 1024;  // of each block, by the driver
  static constexpr int kSmemGranule = 128;

  int sms = 0;
  int smem_bytes = 0;  // that a block may opt in to: an SM's, less what is reserved for a block

  int share(int64_t blocks) const { return static_cast<int>((blocks + sms - 1) / sms); }
  // Shared memory that a block asks for, so that one more than the share does not fit.
  int smem_of_share(int64_t blocks) const {
    return (smem_bytes + kReservedSmem) / (share(blocks) + 1) - kReservedSmem + kSmemGranule;
  }
};

struct DeviceInfo {
  int sm = 0;                // 80, 86, 89, 90, ...
  int sm_count = 0;          // multiprocessors
  int smem_bytes = 0;        // shared memory a block may opt in to
  double dram_gb_per_s = 0;  // device memory bandwidth
  double mma_tflops = 0;     // dense fp16 mma.sync rate

  bool has_pdl() const { return sm >= 90; }
  Pdl pdl() const { return has_pdl() ? Pdl{sm_count, smem_bytes} : Pdl(); }
};

inline auto selection_key(const DeviceInfo& device) {
  const auto& [sm, sm_count, smem_bytes, dram_gb_per_s, mma_tflops] = device;
  return std::tuple(sm, sm_count, smem_bytes, dram_gb_per_s, mma_tflops);
}

// Bandwidth and rates of a GPU by compute capability, where the caller could not measure them.
DeviceInfo with_default_rates(DeviceInfo device);

// The rate that the library's dense 16-bit GEMM reaches.
double dense_tflops(const DeviceInfo& device);

// Reason why a GPU is not served at all, or empty. One that the build has no machine code for is
// refused: the library holds no PTX, so that the driver does not make code that nobody has seen out
// of another architecture's.
std::string why_not_device(const DeviceInfo& device, const Build& build = this_build());

// Reason why a block cannot have so many bytes of shared memory, or empty.
std::string why_not_smem(int bytes, const DeviceInfo& device);

// Reason why this device has no clusters, or empty.
std::string why_not_clusters(const DeviceInfo& device);

}  // namespace mixed_gemm
