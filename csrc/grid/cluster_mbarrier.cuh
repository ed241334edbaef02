// Brings the sums of the blocks of a cluster (sm_90) to the one that reduces them, without the
// cluster's barrier: stores count their bytes off an mbarrier there. A barrier that orders stores
// is a fence for the whole GPU (MEMBAR.ALL.GPU in SASS); with it instead everything took 0.45 us
// more.
//
// Nobody stores to a block before it has opened, and it stays until all that it announced is there:
// no barrier at the end.
#pragma once
#include <cstdint>

namespace mixed_gemm {

class ClusterMbarrier {
 public:
  static constexpr int kBytes = 16;

  __device__ explicit ClusterMbarrier(void* storage) : mbarrier_(address_of(storage)) {}

  // Called by all threads of all blocks. bytes: that the others will push to this one.
  __device__ void open(int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(mbarrier_) : "memory");
    }
    __syncwarp();  // for racecheck: the initialization is an instruction of the whole warp
    if (threadIdx.x == 0) {
      asm volatile(
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
          " fence.mbarrier_init.release.cluster;" ::"r"(mbarrier_),
          "r"(bytes)
          : "memory");
    }
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
  }

  // Returns when all are open; called by all threads. (It comes with an invalidation of L1.)
  __device__ void wait_for_others() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
  }

  // Stores to a block of the cluster. to: where it would be in this one.
  __device__ void push(int rank, float* to, float v) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .u32 to, mbarrier; mapa.shared::cluster.u32 to, %0, %2;"
        " mapa.shared::cluster.u32 mbarrier, %1, %2;"
        " st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [to], %3, [mbarrier]; }" ::"r"(
            address_of(to)),
        "r"(mbarrier_), "r"(rank), "f"(v)
        : "memory");
#endif
  }
  __device__ void push(int rank, float4* to, const float4& v) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .u32 to, mbarrier; mapa.shared::cluster.u32 to, %0, %2;"
        " mapa.shared::cluster.u32 mbarrier, %1, %2;"
        " st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6},"
        " [mbarrier]; }" ::"r"(address_of(to)),
        "r"(mbarrier_), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
        : "memory");
#endif
  }

  // Waits until all that was announced is there: the mbarrier's first phase, so any number of
  // times.
  __device__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .pred p; again:"
        " mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;"
        " @!p bra again; }" ::"r"(mbarrier_)
        : "memory");
#endif
  }

 private:
  static __device__ unsigned address_of(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
  }

  unsigned mbarrier_;
};

}  // namespace mixed_gemm
