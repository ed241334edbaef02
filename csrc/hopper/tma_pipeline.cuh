// A ring of stages in shared memory that TMA fills and warps empty: which stage is next, and the
// two barriers of each.
#pragma once
#include "core/stage_check.h"
#include "cute/arch/copy_sm90_desc.hpp"
#include "cute/arch/util.hpp"
#include "cutlass/arch/barrier.h"

namespace mixed_gemm {

template <int kStages>
struct RingBarriers {
  uint64_t full[kStages], empty[kStages];

  // Called by one thread; the block must meet before anyone uses them.
  __device__ void init(int emptied_by) {
    for (int i = 0; i < kStages; ++i) {
      cutlass::arch::ClusterTransactionBarrier::init(&full[i], 1);
      cutlass::arch::ClusterBarrier::init(&empty[i], emptied_by);
    }
    cutlass::arch::fence_barrier_init();
  }
};

// A stage, for who fills it and for who empties it: addresses in shared memory that move along.
// Computed anew from the number of the stage, they are a chain of a dozen instructions in front of
// its first use (2 to 5 % of the time of 32 and 64 tokens). kBarriers: where RingBarriers are, from
// the first stage on.
template <int kStages, int kStageBytes, int kBarriers>
class RingPosition {
 public:
  __device__ explicit RingPosition(const void* first_stage)
      : address_(cute::cast_smem_ptr_to_uint(first_stage)) {}

  __device__ RingPosition next() const {
    RingPosition after = *this;
    const bool last = stage_ == kStages - 1;
    after.stage_ = last ? 0 : stage_ + 1;
    after.address_ += last ? -(kStages - 1) * kStageBytes : kStageBytes;
    after.phase_ ^= last ? 1 : 0;
    return after;
  }

  __device__ uint32_t address() const { return address_; }
  __device__ uint32_t full_barrier() const {
    return address_ - stage_ * (kStageBytes - kBarrierBytes) + kBarriers;
  }
  __device__ uint32_t empty_barrier() const { return full_barrier() + kStages * kBarrierBytes; }

  // Whether the copies have come; wait_full() returns when they have.
  __device__ bool is_full() const { return has_flipped<false>(full_barrier(), phase_); }
  __device__ void wait_full() const { wait(full_barrier(), phase_); }
  // Returns when the stage has been read. The first time around all stages are empty.
  __device__ void wait_empty() const { wait(empty_barrier(), phase_ ^ 1); }

  // Checks that a box of so many bytes at `to` ends before this stage does.
  __device__ void check_box(uint32_t to, uint32_t bytes) const {
    MIXED_GEMM_CHECK_STAGE(int64_t{to} - address_, bytes, kStageBytes);
  }

  __device__ void expect(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_barrier()),
                 "r"(bytes)
                 : "memory");
  }
  // Takes an address: a stage is released when its reader has long gone on.
  static __device__ void release(uint32_t empty_barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty_barrier) : "memory");
  }

 private:
  static constexpr int kBarrierBytes = sizeof(uint64_t);

  // kSleep: waits until it has, or 10 ms. (Asking again and again takes power from other warps.)
  template <bool kSleep>
  static __device__ bool has_flipped(uint32_t barrier, uint32_t phase) {
    uint32_t flipped;
    if constexpr (kSleep) {
      asm volatile(
          "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;"
          " selp.u32 %0, 1, 0, p; }"
          : "=r"(flipped)
          : "r"(barrier), "r"(phase), "r"(10'000'000)
          : "memory");
    } else {
      asm volatile(
          "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
          " selp.u32 %0, 1, 0, p; }"
          : "=r"(flipped)
          : "r"(barrier), "r"(phase)
          : "memory");
    }
    return flipped != 0;
  }
  static __device__ void wait(uint32_t barrier, uint32_t phase) {
    while (!has_flipped<true>(barrier, phase)) {
    }
  }

  uint32_t address_, phase_ = 0;
  int stage_ = 0;
};

// Reads no matrix, so it may come before a wait for who writes them. (With cute's function, which
// takes the address as an integer, ptxas puts 20 to 50 moves more into the kernels of wide tiles.)
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box of a matrix to shared memory, counted by the barrier `full`; what lies outside of
// the matrix reads as 0. x: along rows. (cute's function takes pointers, from which addresses are
// made for each copy.)
__device__ inline void copy_box(const CUtensorMap& map, uint32_t full, uint32_t to, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(full)
      : "memory");
}

}  // namespace mixed_gemm
