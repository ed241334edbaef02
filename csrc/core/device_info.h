// What the heuristic and why_not need to know about a GPU. Filled by the runner, or by hand in
// tests.
#pragma once
#include <cstdint>

namespace mixed_gemm {

struct DeviceInfo {
  int sm = 0;                // 80, 86, 89, 90, ...
  int sm_count = 0;          // multiprocessors
  int smem_bytes = 0;        // shared memory a block may opt in to
  double dram_gb_per_s = 0;  // device memory bandwidth
  double mma_tflops = 0;     // dense fp16 mma.sync rate

  bool has_early_start() const { return sm >= 90; }  // kernel/early_start.cuh
};

}  // namespace mixed_gemm
