// Device entry of the multistage kernels for rows of experts: the parameters of one product, with
// the rows and the weight of a block.
#pragma once
#include "grouped/find_rows.cuh"
#include "grouped/params.cuh"
#include "grouped/work.cuh"
#include "multistage/kernel.cuh"

namespace mixed_gemm {

template <typename Config>
using GroupedMixedGemm = TileGemm<Config, MultistageMainloop<Config>,
                                  TileOutput<typename Config::Element, typename Config::Factor>,
                                  SplitCode::kAll, OneTile>;

template <typename Config>
using GroupedTileParams = GroupedParams<typename GroupedMixedGemm<Config>::Params>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    grouped_mixed_gemm_kernel(const __grid_constant__ GroupedTileParams<Config> params) {
  using Gemm = GroupedMixedGemm<Config>;
  pdl_wait();  // for the offsets, or the list
  const FoundRows found =
      rows_of_block<Config::kTile.m>(params.rows, params.row_blocks, static_cast<int>(blockIdx.y));
  typename Gemm::Params own = params.gemm;
  auto& output = own.output.output;
  if (found.block.expert < 0) {
    zero_rest<Config::kTile.m>(found, params.rows.rows, output.d, output.n,
                               static_cast<int>(blockIdx.x) * Config::kTile.n, Config::kTile.n);
    return;
  }
  const RowBlock block = found.block;
  auto& operands = own.mainloop;
  own.work.first_row = block.row0;
  operands.a.m = own.output.m = block.row_end;
  operands.b.b += block.expert * params.packed_stride;
  operands.scales.scales += block.expert * params.scale_stride;
  if constexpr (Config::kScales.zeros) {
    operands.scales.zeros += block.expert * params.scale_stride;
  }
  output = output.of_expert(block.expert);
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Gemm::run(own, *reinterpret_cast<typename Gemm::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
