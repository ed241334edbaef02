// Brings rows of memory into L2. It is a hint, which no kernel waits for and no write of anybody
// makes wrong, so it may come before wait_for_kernel_before().
#pragma once
#include <cstdint>

#include "ranks/sum_over_ranks.h"

namespace mixed_gemm {

constexpr int kPrefetchBytes = 2048;  // that a thread asks for at once

__device__ inline void prefetch_l2(uintptr_t begin, uintptr_t end) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  // 16-byte pieces that are whole; the ends of other rows come with the kernel that needs them.
  begin = (begin + 15) & ~uintptr_t{15};
  end &= ~uintptr_t{15};
  if (begin < end) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin),
                 "r"(static_cast<unsigned>(end - begin)));
  }
#else
  for (; begin < end; begin += 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(begin));
#endif
}

// The share of this block; neighbouring shares go to different blocks, so that all of them ask.
__device__ inline void prefetch_rows(const PrefetchRows& of) {
  if (of.first == nullptr) return;
  const auto parts = static_cast<unsigned>((of.width + kPrefetchBytes - 1) / kPrefetchBytes);
  const unsigned shares = static_cast<unsigned>(of.rows) * parts;
  const auto first = reinterpret_cast<uintptr_t>(of.first);
#pragma unroll 1
  for (unsigned i = blockIdx.x + gridDim.x * threadIdx.x; i < shares; i += gridDim.x * blockDim.x) {
    const uintptr_t row = first + i / parts * static_cast<uintptr_t>(of.stride);
    const int64_t begin = int64_t{i % parts} * kPrefetchBytes;
    const int64_t end = begin + kPrefetchBytes < of.width ? begin + kPrefetchBytes : of.width;
    prefetch_l2(row + begin, row + end);
  }
}

}  // namespace mixed_gemm
