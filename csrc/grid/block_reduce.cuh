// Reduces the accumulators of a tile over the blocks that share out its K, through device memory or
// through the shared memory of a cluster. All have the same threads, so each thread passes its
// registers to its twin: no exchange, every access coalesced.
#pragma once
#include <cooperative_groups.h>

#include "cutlass/array.h"

namespace mixed_gemm {

// Accumulators: cutlass::Array of float or int.
template <typename Accumulators, int kThreads>
struct BlockReduce {
  using Sum = typename Accumulators::Element;
  static_assert(sizeof(Sum) == sizeof(float), "passed as bits");
  static constexpr int kQuads = Accumulators::kElements / 4;

  // Writes partial sums. slot: the float4 of this thread; the next one is kThreads further. Around
  // L1, which other SMs do not see.
  static __device__ void store(float4* slot, const Accumulators& accumulators) {
    const auto* quads = reinterpret_cast<const float4*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kQuads; ++i) __stcg(slot + i * kThreads, quads[i]);
  }

  // Adds those that another block has stored.
  static __device__ void add(const float4* slot, Accumulators& accumulators) {
    constexpr int kBatch = kQuads < 8 ? kQuads : 8;  // loads in flight
    CUTLASS_PRAGMA_UNROLL
    for (int first = 0; first < kQuads; first += kBatch) {
      float4 more[kBatch];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBatch; ++i) more[i] = __ldcg(slot + (first + i) * kThreads);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 4 * kBatch; ++i) {
        accumulators[4 * first + i] += reinterpret_cast<const Sum*>(more)[i];
      }
    }
  }

  // Reduces over the blocks of a cluster, each with a slice of K; rank 0 has the last one
  // (WorkSplit). The store blocks of the tile (epilogue/store_tile.cuh) are shared out: this slice
  // reduces its own in the order of the slices and returns which they are. `storage` holds the
  // accumulators until the next cluster-wide barrier.
  template <int kMmaM>
  static __device__ uint32_t reduce_cluster(float4* storage, int thread, int slice, int slices,
                                            Accumulators& accumulators) {
    uint32_t store_blocks = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr int kMmaN = kQuads / kMmaM;
    const auto cluster = cooperative_groups::this_cluster();
    auto* quads = reinterpret_cast<float4*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kQuads; ++i) storage[i * kThreads + thread] = quads[i];
    cluster.sync();
    int owner = -1;
    CUTLASS_PRAGMA_UNROLL
    for (int store_block = 0; store_block < kMmaM * ((kMmaN + 3) / 4); ++store_block) {
      owner = owner + 1 == slices ? 0 : owner + 1;
      if (owner != slice) continue;
      store_blocks |= 1u << store_block;
      constexpr int kTiles = kMmaN < 4 ? kMmaN : 4;  // 16 x 8 each
      const int first = store_block % kMmaM + store_block / kMmaM * 4 * kMmaM;
      Sum sums[4 * kTiles] = {};
#pragma unroll 2  // two blocks are what is chosen most
      for (int other = 0; other < slices; ++other) {
        const float4* theirs = cluster.map_shared_rank(storage, slices - 1 - other) + thread;
        float4 more[kTiles];
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kTiles; ++i) more[i] = theirs[(first + i * kMmaM) * kThreads];
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < 4 * kTiles; ++i) sums[i] += reinterpret_cast<const Sum*>(more)[i];
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 4 * kTiles; ++i) {
        accumulators[4 * (first + i / 4 * kMmaM) + i % 4] = sums[i];
      }
    }
#endif
    return store_blocks;
  }

  static __device__ void release_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    cooperative_groups::this_cluster().sync();
#endif
  }
};

}  // namespace mixed_gemm
