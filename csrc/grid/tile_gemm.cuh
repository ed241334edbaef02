// A GEMM by tiles, whatever the mainloop multiplies and the output makes of the sums: which tiles
// and which part of K are mine, mainloop, partial sums, epilogue.
//
// All work is a sequence of work steps, of which step s is k-tile s % k_tiles of output tile
// s / k_tiles, and every block owns a run of it (grid/work_split.h). A run that ends inside a tile
// leaves that tile to its first block, which reduces the partial sums of the others in a fixed
// order, so results do not depend on timing.
#pragma once
#include <type_traits>

#include "core/split.h"
#include "core/tile.h"
#include "cutlass/semaphore.h"
#include "epilogue/store_tile.cuh"
#include "grid/block_reduce.cuh"
#include "grid/pdl.cuh"
#include "grid/warp_reduce.cuh"
#include "grid/work_split.h"

namespace mixed_gemm {

// Which ways to share out K the code of a kernel is for. Where a tile has no registers to spare,
// the mere presence of stream-K costs the others time.
enum class SplitCode : int { kAll, kWithoutStreamK };

template <typename Mainloop, typename Output, typename Schedule>
struct TileGemmParams {
  typename Mainloop::Params mainloop;
  Output output;
  Schedule work;
  float* slots;  // stream-K: a tile of partial sums per block
  int* flags;    // stream-K: one zeroed semaphore per block, released when its slot is filled
};

// Config: a WarpTiling. Mainloop_ adds A * B to its Accumulators, and reads no device memory before
// run(); Output stores them. Schedule: what a block does, as WorkSplit says it.
template <typename Config, typename Mainloop_, typename Output, SplitCode kCode = SplitCode::kAll,
          typename Schedule = WorkSplit>
struct TileGemm {
  using Mainloop = Mainloop_;
  using Part = WarpPart<Config>;
  using Sums = std::conditional_t<(Config::kKWarps > 1), cutlass::Array<float, Part::kAccumulators>,
                                  typename Mainloop::Accumulators>;
  using Shared = BlockReduce<Sums, Config::kThreads>;

  using Params = TileGemmParams<Mainloop, Output, Schedule>;

  struct SharedStorage {
    typename Mainloop::SharedStorage mainloop;
    int done[kMaxWarps];  // work steps of this worker that a warp has finished
  };

  static __device__ void run(const Params& params, SharedStorage& storage) {
    storage.done[thread_index() / 32] = 0;
    do {
      typename Mainloop::Accumulators accumulators;
      accumulators.clear();
      __syncwarp();  // `done` is written
      {
        assume_split(params);
        const WorkItem item = params.work.item(worker(params), done_of(storage));
        Mainloop mainloop(params.mainloop, storage.mainloop,
                          params.work.row0(item, Config::kTile.m), item.tile_n * Config::kTile.n,
                          item.k_begin, item.k_end, thread_index());
        pdl_wait();  // addresses are known by now
        pdl_launch_dependents();
        mainloop.run(accumulators);
      }
      assume_split(params);
      const WorkItem item = params.work.item(worker(params), done_of(storage));
      const int done = done_of(storage) + item.k_end - item.k_begin;
      __syncwarp();
      storage.done[thread_index() / 32] = done;  // now, so that nothing of it lives any longer
      if constexpr (Config::kKWarps > 1) {
        Sums sums;
        reduce_slices<Config, Mainloop::kSliceBytes>(storage.mainloop.bytes, thread_index(),
                                                     accumulators, sums);
        reduce_and_store(params, item, storage, sums);
      } else {
        reduce_and_store(params, item, storage, accumulators);
      }
      __syncwarp();
      assume_split(params);
    } while (!params.work.is_last(worker(params), done_of(storage)));
  }

 private:
  // Values needed before and after the mainloop are computed again there, from special registers
  // and shared memory that the compiler cannot look through: kept across it, they cost 15
  // registers, and the large tiles have none to spare.
  static __device__ int done_of(const SharedStorage& storage) {
    return static_cast<const volatile int&>(storage.done[thread_index() / 32]);
  }
  static __device__ int worker(const Params& params) {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return params.work.worker(block);
  }
  // Called in front of what asks for the split: the compiler leaves out the code of stream-K.
  static __device__ void assume_split(const Params& params) {
    if constexpr (kCode == SplitCode::kWithoutStreamK) {
      __builtin_assume(params.work.split != SplitK::kStreamK);
    }
  }
  static __device__ int thread_index() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
  }

  static constexpr bool kClusterFits =
      Part::kAccumulators * Config::kThreads * 4 <= sizeof(typename Mainloop::SharedStorage);

  static __device__ void reduce_and_store(const Params& params, const WorkItem& item,
                                          SharedStorage& storage, Sums& accumulators) {
    assume_split(params);
    const int thread = thread_index(), worker = TileGemm::worker(params);
    const bool stream = Config::kKWarps == 1 && params.work.split == SplitK::kStreamK;
    if (stream && item.k_begin > 0) {
      Shared::store(slot(params, worker), accumulators);
      cutlass::Semaphore(params.flags + worker, thread).release(1);
      return;
    }
    if (stream && item.k_end < params.work.k_tiles) {
      const int last = params.work.workers_until_end_of(item.tile, worker);
      for (int other = worker + 1; other < last; ++other) {
        cutlass::Semaphore(params.flags + other, thread).wait(1);
        Shared::add(slot(params, other), accumulators);
      }
    }
    uint32_t store_blocks = kAllStoreBlocks;
    const bool cluster = kClusterFits && params.work.split == SplitK::kCluster;
    if (cluster) {
      store_blocks = Shared::template reduce_cluster<Part::kMmaM>(
          reinterpret_cast<float4*>(&storage.mainloop), thread, params.work.slice(worker),
          params.work.slices, accumulators);
    }
    const int row = params.work.row0(item, Config::kTile.m) + Part::row(thread);
    const int column = item.tile_n * Config::kTile.n + Part::column(thread);
    const bool partial = Output::kStoresPartials && params.work.split == SplitK::kParallel;
    if (!partial) {
      params.output.template store<Part::kMmaM, Part::kMmaN>(accumulators.data(), row, column,
                                                             thread % 32, store_blocks);
    } else if constexpr (Output::kStoresPartials) {
      params.output.template store_partials<Part::kMmaM, Part::kMmaN>(
          accumulators.data(), params.work.slice(worker), row, column, thread % 32);
    }
    if (cluster) Shared::release_cluster();  // the others have read this block's sums
  }

  // A worker stores at most one tile of partial sums: only its first item can begin inside a tile.
  static __device__ float4* slot(const Params& params, int worker) {
    return reinterpret_cast<float4*>(params.slots + static_cast<int64_t>(worker) * Config::kTile.m *
                                                        Config::kTile.n) +
           thread_index();
  }
};

}  // namespace mixed_gemm
