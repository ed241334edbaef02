// A GEMM of specialised warps (sm_90a), whatever the mainloop multiplies: which tiles and which
// part of K are mine, mainloop, partial sums, output. The work is cut as in grid/tile_gemm.cuh,
// but a block stays and takes tile after tile, so that the copies of the next one run while the
// outputs of one are stored.
#pragma once
#include "cute/arch/cluster_sm90.hpp"
#include "cutlass/arch/reg_reconfig.h"
#include "grid/block_reduce.cuh"
#include "grid/pdl.cuh"
#include "grid/work_split.h"
#include "hopper/tma_pipeline.cuh"
#include "hopper/warp_roles.cuh"

namespace mixed_gemm {

// Mainloop_: request() for one thread, multiply() for the multiplying warps. Output::Writer:
// request() asks for what it reads of a tile's rows and columns, before the tile is multiplied;
// store() runs the epilogue, store_partials() leaves the sums of a slice. Schedule: what a block
// does, as WorkSplit says it; where its items have experts, both enter() an item's expert first.
template <typename Config, typename Mainloop_, typename Output, typename Schedule = WorkSplit>
struct SpecializedGemm {
  using Mainloop = Mainloop_;
  using Sums = typename Mainloop::Sums;
  using Shared = BlockReduce<Sums, Config::kMultiplyThreads>;

  struct Params {
    typename Mainloop::Copies copies;
    Output output;
    Schedule work;
    int blocks;    // of the grid: a block does the work of every blocks-th worker
    float* slots;  // stream-K: a tile of partial sums per block
    int* flags;    // stream-K: one zeroed semaphore per block, released when its slot is filled
  };
  struct SharedStorage : Mainloop::SharedStorage, Output::Shared {};

  // The first copies wait for all that their thread does before them: so that thread makes the
  // barriers itself, and knows its first item when the kernel before ends.
  static __device__ void run(const Params& p, SharedStorage& storage) {
    if (threadIdx.x >= Config::kMultiplyThreads) {
      copy(p, storage);
    } else {
      multiply(p, storage);
    }
  }

 private:
  static __device__ void copy(const Params& p, SharedStorage& storage) {
    cutlass::arch::warpgroup_reg_dealloc<Config::kCopyRegisters>();
    if (threadIdx.x / 32 != Config::kMultiplyThreads / 32) return;
    // elect: with a comparison of threadIdx.x ptxas puts loops around what each copy is made of.
    const bool elected = cute::elect_one_sync();
    if (elected) {
      Mainloop::prefetch_maps(p.copies);
      storage.barriers.init(Config::kMultiplyThreads / 32);
    }
    __syncwarp();
    Config::barriers_are_made();
    if (!elected) return;
    Mainloop mainloop(p.copies, storage);
    for_each_item(p, [&](const auto& item, int) {
      make_before_wait(&storage, item.tile_m, item.tile_n, item.k_begin, item.k_end);
      pdl_wait();  // at once but for the first item
      pdl_launch_dependents();
      if constexpr (Schedule::kHasExperts) mainloop.enter(item.expert);
      mainloop.request(p.work.row0(item, Config::kTile.m), item.tile_n * Config::kTile.n,
                       item.k_begin, item.k_end);
    });
  }

  static __device__ void multiply(const Params& p, SharedStorage& storage) {
    cutlass::arch::warpgroup_reg_alloc<Config::kMultiplyRegisters>();
    if constexpr (Config::kHasTable) {
      Mainloop::fill_table(p.copies, storage);
      Config::meet();
    }
    Config::wait_for_barriers();
    pdl_wait();
    Mainloop mainloop(p.copies, storage);
    typename Output::Writer writer(p.output, storage);
    for_each_item(p, [&](const auto& item, int worker) {
      Sums sums;
      sums.clear();
      if constexpr (Schedule::kHasExperts) {
        mainloop.enter(item.expert);
        writer.enter(item.expert, item.row_end);
      }
      writer.request(p.work.row0(item, Config::kTile.m), item.tile_n * Config::kTile.n);
      mainloop.multiply(p.work.row0(item, Config::kTile.m), item.tile_n * Config::kTile.n,
                        item.k_begin, item.k_end, sums);
      // Not before the products: up to 4 % with 16 rows and a parallel split, else level.
      pdl_launch_dependents();
      reduce_and_store(p, item, worker, sums, writer);
    });
  }

  template <typename Use>
  static __device__ void for_each_item(const Params& p, const Use& use) {
    if constexpr (Schedule::kHasExperts) pdl_wait();  // for the list of items
    for (int worker = p.work.worker(static_cast<int>(blockIdx.x)); worker >= 0;
         worker -= p.blocks) {
      int done = 0;
      do {
        const auto item = p.work.item(worker, done);
        use(item, worker);
        done += item.k_end - item.k_begin;
      } while (!p.work.is_last(worker, done));
    }
  }

  template <typename Item>
  static __device__ void reduce_and_store(const Params& p, const Item& item, int worker, Sums& sums,
                                          typename Output::Writer& writer) {
    const bool stream = p.work.split == SplitK::kStreamK;
    if (stream && item.k_begin > 0) {
      Shared::store(slot(p, worker), sums);
      release_semaphore(p.flags + worker);
      return;
    }
    if (stream && item.k_end < p.work.k_tiles) {
      const int last = p.work.workers_until_end_of(item.tile, worker);
      for (int other = worker + 1; other < last; ++other) {
        wait_semaphore(p.flags + other);
        Shared::add(slot(p, other), sums);
      }
    }
    const int row = p.work.row0(item, Config::kTile.m), column = item.tile_n * Config::kTile.n;
    if (p.work.split == SplitK::kParallel) {
      writer.store_partials(sums.data(), p.work.slice(worker), row, column);
    } else {
      writer.store(sums.data(), row, column);
    }
  }

  // As cutlass::Semaphore does it, for the threads that multiply and not for all of the block.
  static __device__ void release_semaphore(int* flag) {
    Config::meet();
    if (threadIdx.x == 0) {
      __threadfence();
      asm volatile("st.global.release.gpu.b32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
    }
  }
  static __device__ void wait_semaphore(const int* flag) {
    if (threadIdx.x == 0) {
      int set = 0;
      while (set == 0) {
        asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(set) : "l"(flag) : "memory");
      }
    }
    Config::meet();
  }
  static __device__ float4* slot(const Params& p, int worker) {
    return reinterpret_cast<float4*>(p.slots + static_cast<int64_t>(worker) * Config::kTile.m *
                                                   Config::kTile.n) +
           threadIdx.x;
  }
};

template <typename Gemm, typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kBlocks)
    specialized_gemm_kernel(const __grid_constant__ typename Gemm::Params params) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) uint8_t shared_bytes[];
  Gemm::run(params, *reinterpret_cast<typename Gemm::SharedStorage*>(shared_bytes));
#elif defined(__CUDA_ARCH__)
#error "wgmma needs sm_90a: without it this kernel would launch and write nothing"
#endif
}

}  // namespace mixed_gemm
