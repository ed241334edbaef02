// Device entry of the multistage family: which tile and slice of K is mine, mainloop, split-K,
// epilogue.
#pragma once
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "cutlass/semaphore.h"
#include "epilogue/output_visitor.cuh"
#include "kernel/gemm_args.h"
#include "mainloop/multistage_mainloop.cuh"

namespace mixed_gemm {

template <typename Config>
struct MixedGemm {
  using ThreadblockShape = cutlass::gemm::GemmShape<Config::kTile.m, Config::kTile.n, kTileK>;
  using WarpShape = cutlass::gemm::GemmShape<Config::kTile.warp_m, Config::kTile.warp_n, kTileK>;
  // Neighbouring blocks share columns of B and, in runs of 8, rows of A: both are then served by
  // L2.
  using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>;
  using Mainloop = MultistageMainloop<Config>;
  using Output = DefaultOutputEpilogue<typename Config::Element, ThreadblockShape, WarpShape>;

  struct Params {
    typename Mainloop::Params mainloop;
    typename Output::Visitor::Params output;
    cutlass::gemm::GemmCoord tiles;  // in tiles; k() is the number of slices
    int swizzle_log_tile;
    SplitK split;
    float* partials;
    int* locks;
  };

  union SharedStorage {
    typename Mainloop::SharedStorage mainloop;
    typename Output::Epilogue::SharedStorage epilogue;
  };

  static __device__ void run(const Params& params, SharedStorage& storage) {
    const auto tile = Swizzle().get_tile_offset(params.swizzle_log_tile);
    if (tile.m() >= params.tiles.m() || tile.n() >= params.tiles.n()) return;
    const int thread = threadIdx.x;
    const int row0 = tile.m() * Config::kTile.m, column0 = tile.n() * Config::kTile.n;
    const int slices = params.tiles.k(), k_tiles = params.mainloop.k_tiles;

    typename Mainloop::Accumulators accumulators;
    accumulators.clear();
    Mainloop mainloop(params.mainloop, storage.mainloop, row0, column0, thread);
    mainloop.run(static_cast<int>(static_cast<int64_t>(k_tiles) * tile.k() / slices),
                 static_cast<int>(static_cast<int64_t>(k_tiles) * (tile.k() + 1) / slices),
                 accumulators);

    // Serial: slices of a tile take turns on one buffer, in order, so that the fp32 sum has one
    // fixed order. Parallel: each slice has a buffer, and the reduction kernel adds them in order.
    const bool serial = params.split == SplitK::kSerial,
               parallel = params.split == SplitK::kParallel;
    const int slice = tile.k();
    float* partials =
        params.partials + (parallel ? slice * params.output.m * params.output.partial_stride : 0);
    cutlass::Semaphore semaphore(params.locks + tile.m() * params.tiles.n() + tile.n(), thread);
    if (serial && slice > 0) semaphore.wait(slice);
    typename Output::Visitor visitor(
        params.output, serial && slice > 0 ? partials : nullptr,
        parallel || (serial && slice < slices - 1) ? partials : nullptr, row0, column0, thread);
    typename Output::Epilogue epilogue(storage.epilogue, thread,
                                       __shfl_sync(0xffffffff, thread / 32, 0), thread % 32);
    epilogue(visitor, accumulators);
    if (serial && slice < slices - 1) semaphore.release(slice + 1);
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    mixed_gemm_kernel(const __grid_constant__ typename MixedGemm<Config>::Params params) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  MixedGemm<Config>::run(
      params, *reinterpret_cast<typename MixedGemm<Config>::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
