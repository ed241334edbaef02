// A build with -DMIXED_GEMM_CHECK_STAGES holds every copy into shared memory against the stage that
// it is meant for, and traps where it would leave it. compute-sanitizer can not tell: it does not
// see what the copy engine writes, and a write into the neighbouring stage of the same block is
// none out of bounds. In other builds this is nothing at all.
#pragma once

#if defined(MIXED_GEMM_CHECK_STAGES) && defined(__CUDA_ARCH__)
#include <cstdint>
#include <cstdio>

namespace mixed_gemm {

// `bytes` bytes at `offset` of a stage of `stage_bytes`.
__device__ inline void check_stage_write(const char* what, int64_t offset, int64_t bytes,
                                         int64_t stage_bytes) {
  if (offset >= 0 && offset + bytes <= stage_bytes) return;
  printf("mixed_gemm: %s: %lld bytes at %lld of a stage of %lld bytes\n", what,
         static_cast<long long>(bytes), static_cast<long long>(offset),
         static_cast<long long>(stage_bytes));
  __trap();
}

}  // namespace mixed_gemm

#define MIXED_GEMM_CHECK_STAGE(what, offset, bytes, stage_bytes) \
  ::mixed_gemm::check_stage_write(what, offset, bytes, stage_bytes)
#else
#define MIXED_GEMM_CHECK_STAGE(what, offset, bytes, stage_bytes) static_cast<void>(0)
#endif
