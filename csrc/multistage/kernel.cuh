// Device entry of the multistage family, for every way to split K and every activation;
// plain_kernel.cuh is the other one.
#pragma once
#include "epilogue/tile_output.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/multistage_mainloop.cuh"

namespace mixed_gemm {

template <typename Config>
using MixedGemm =
    TileGemm<Config, MultistageMainloop<Config>, TileOutput<typename Config::Element>>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    mixed_gemm_kernel(const __grid_constant__ typename MixedGemm<Config>::Params params) {
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  MixedGemm<Config>::run(
      params, *reinterpret_cast<typename MixedGemm<Config>::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
