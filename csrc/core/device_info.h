// What the heuristic and why_not need to know about a GPU. Filled by the runner, or by hand in
// tests.
#pragma once
#include <cstdint>

namespace mixed_gemm {

// A GPU whose kernels may start early (kernel/early_start.cuh); sms is 0 for another one.
struct EarlyStart {
  int sms = 0;
  int smem_bytes = 0;  // shared memory a block may opt in to
};

struct DeviceInfo {
  int sm = 0;                // 80, 86, 89, 90, ...
  int sm_count = 0;          // multiprocessors
  int smem_bytes = 0;        // shared memory a block may opt in to
  double dram_gb_per_s = 0;  // device memory bandwidth
  double mma_tflops = 0;     // dense fp16 mma.sync rate

  bool has_early_start() const { return sm >= 90; }
  EarlyStart early_start() const {
    return has_early_start() ? EarlyStart{sm_count, smem_bytes} : EarlyStart();
  }
};

}  // namespace mixed_gemm
