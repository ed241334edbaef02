// The direct mainloop in CUTLASS's own kernel, for problems whose K nobody splits; kernel.cuh is
// the other one, with every way to split it.
#pragma once
#include "epilogue/scaled_fragment_epilogue.cuh"
#include "grid/plain_gemm.cuh"
#include "grid/threadblock_mma.cuh"
#include "mainloop/direct_mainloop.cuh"

namespace mixed_gemm {

template <typename Config>
using PlainScaledMma = ThreadblockMma<Config, DirectMainloop<Config>, kScaledTileK>;

template <typename Config>
using PlainScaled =
    PlainKernel<PlainScaledMma<Config>, ScaledFragmentEpilogue<Config, PlainScaledMma<Config>>>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    plain_scaled_kernel(const __grid_constant__ typename PlainScaled<Config>::Params params) {
  using Kernel = PlainScaled<Config>;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
