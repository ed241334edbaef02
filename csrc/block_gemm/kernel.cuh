// Device entry of block_quant_gemm's GEMM.
#pragma once
#include "block_gemm/config.cuh"
#include "block_gemm/output.cuh"
#include "block_gemm/sums.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/direct_mainloop.cuh"
#include "mainloop/dynamic_shared.cuh"

namespace mixed_gemm {

// The mainloop whose [begin, end) of K comes in parts of split_lines.
template <typename Config>
class BlockMainloop
    : public DirectMainloop<Config, RowCopy<Config::kTile.m, Config::kThreads>, BlockSums> {
  using Base = DirectMainloop<Config, RowCopy<Config::kTile.m, Config::kThreads>, BlockSums>;

 public:
  __device__ BlockMainloop(const typename Base::Params& params,
                           typename Base::SharedStorage& storage, int row0, int column0, int begin,
                           int end, int thread)
      : Base(params, storage, row0, column0, begin * params.sums.split_lines,
             min(end * params.sums.split_lines, params.sums.lines), thread) {}
};

template <typename Config>
using BlockGemm = TileGemm<Config, BlockMainloop<Config>, BlockOutput>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    block_gemm_kernel(const __grid_constant__ typename BlockGemm<Config>::Params params) {
  run_in_dynamic_shared<BlockGemm<Config>>(params);
}

}  // namespace mixed_gemm
