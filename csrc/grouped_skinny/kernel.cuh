// Device entry of the skinny kernels for rows of experts: the parameters of one product, moved to
// the rows and to the weight of a block.
#pragma once
#include "grouped/find_rows.cuh"
#include "grouped/params.cuh"
#include "skinny/kernel.cuh"

namespace mixed_gemm {

template <typename Config>
using GroupedSkinnyParams = GroupedParams<typename SkinnyGemm<Config>::Params>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    grouped_skinny_kernel(const __grid_constant__ GroupedSkinnyParams<Config> params) {
  using Gemm = SkinnyGemm<Config>;
  pdl_wait();  // for the offsets, or the list
  const FoundRows found =
      rows_of_block<Config::kM>(params.rows, params.row_blocks, static_cast<int>(blockIdx.y));
  typename Gemm::Params own = params.gemm;
  if (found.block.expert < 0) {
    if (blockIdx.z == 0) {
      zero_rest<Config::kM>(found, params.rows.rows, own.output.d, own.n,
                            static_cast<int>(blockIdx.x) * Config::kN, Config::kN);
    }
    return;
  }
  const RowBlock block = found.block;
  own.a += block.row0 * own.a_stride;
  own.m = block.row_end - block.row0;
  own.b += block.expert * params.packed_stride;
  own.scales.scales += block.expert * params.scale_stride;
  if constexpr (Config::kZeros) own.scales.zeros += block.expert * params.scale_stride;
  own.output = own.output.of_expert(block.expert);
  own.output.d += int64_t{block.row0} * own.n;
  if constexpr (Gemm::kDynamicBytes > 0) {
    extern __shared__ __align__(1024) uint8_t dynamic[];
    Gemm(own, reinterpret_cast<typename Gemm::SharedStorage&>(dynamic)).run();
  } else {
    __shared__ typename Gemm::SharedStorage storage;
    Gemm(own, storage).run();
  }
}

}  // namespace mixed_gemm
