// A build with -DMIXED_GEMM_CHECK_STAGES compares every copy into shared memory with the stage that
// it is meant for, and traps where it would leave it. compute-sanitizer cannot tell: it does not
// see what TMA writes, and a write into the neighbouring stage of the same block is not out of
// bounds. Other builds compile nothing here.
#pragma once

#if defined(MIXED_GEMM_CHECK_STAGES) && defined(__CUDA_ARCH__)
#include <cstdint>

namespace mixed_gemm {

// Traps unless `bytes` bytes at `offset` lie in a stage of `stage_bytes`. It prints no text: a call
// of printf() would have ptxas wait for every wgmma, so that another schedule than ours is checked.
__device__ inline void check_stage_write(int64_t offset, int64_t bytes, int64_t stage_bytes) {
  if (offset < 0 || offset + bytes > stage_bytes) __trap();
}

}  // namespace mixed_gemm

#define MIXED_GEMM_CHECK_STAGE(offset, bytes, stage_bytes) \
  ::mixed_gemm::check_stage_write(offset, bytes, stage_bytes)
#else
#define MIXED_GEMM_CHECK_STAGE(offset, bytes, stage_bytes) static_cast<void>(0)
#endif
