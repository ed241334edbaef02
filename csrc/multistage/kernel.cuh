// Device entry of the multistage family, for every way to split K and every activation;
// plain_kernel.cuh is the other one.
#pragma once
#include "epilogue/tile_output.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/multistage_mainloop.cuh"

namespace mixed_gemm {

template <typename Config, SplitCode kCode>
using MixedGemm = TileGemm<Config, MultistageMainloop<Config>,
                           TileOutput<typename Config::Element, typename Config::Factor>, kCode>;

template <typename Config>
using MixedGemmParams = typename MixedGemm<Config, SplitCode::kAll>::Params;

template <typename Config, SplitCode kCode>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    mixed_gemm_kernel(const __grid_constant__ MixedGemmParams<Config> params) {
  using Gemm = MixedGemm<Config, kCode>;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Gemm::run(params, *reinterpret_cast<typename Gemm::SharedStorage*>(shared_bytes));
}

// The kernel with the code of a split, and no more of it than it can bear.
template <typename Config>
auto mixed_gemm_kernel_for(SplitK split) {
  if constexpr (includes(Config::kTile.stream_k_apart, Config::kScales)) {
    if (split != SplitK::kStreamK) return mixed_gemm_kernel<Config, SplitCode::kWithoutStreamK>;
  }
  return mixed_gemm_kernel<Config, SplitCode::kAll>;
}

}  // namespace mixed_gemm
