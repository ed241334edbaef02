// A ring of stages in shared memory that the copy engine fills (TMA) and warps empty: which stage
// is next, and the two barriers of each.
#pragma once
#include "cute/arch/copy_sm90_tma.hpp"
#include "cutlass/arch/barrier.h"

namespace mixed_gemm {

template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t phase = 0;  // of the barriers: flips each time around
  __device__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <int kStages>
struct RingBarriers {
  using Full = cutlass::arch::ClusterTransactionBarrier;
  using Empty = cutlass::arch::ClusterBarrier;
  uint64_t full[kStages], empty[kStages];

  // By one thread; the block must meet before anyone uses them.
  __device__ void init(int emptied_by) {
    for (int i = 0; i < kStages; ++i) {
      Full::init(&full[i], 1);
      Empty::init(&empty[i], emptied_by);
    }
    cutlass::arch::fence_barrier_init();
  }
  __device__ void wait_full(const RingPosition<kStages>& at) {
    Full::wait(&full[at.stage], at.phase);
  }
  __device__ void wait_empty(const RingPosition<kStages>& at) {
    Empty::wait(&empty[at.stage], at.phase ^ 1);  // the first time around all are empty
  }
  __device__ void expect(const RingPosition<kStages>& at, uint32_t bytes) {
    Full::arrive_and_expect_tx(&full[at.stage], bytes);
  }
  __device__ void release(int stage) { Empty::arrive(&empty[stage]); }
};

// Reads no matrix, so it may come before a wait for who writes them. (With cute's function, which
// takes the address as an integer, ptxas puts 20 to 50 moves more into the kernels of wide tiles.)
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A box of a matrix to shared memory; what lies outside of the matrix reads as 0. x: along rows.
__device__ inline void copy_box(const CUtensorMap& map, uint64_t* full, void* to, int x, int y) {
  constexpr auto kHint = static_cast<uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
  cute::SM90_TMA_LOAD_2D::copy(&map, full, kHint, to, x, y);
}

}  // namespace mixed_gemm
