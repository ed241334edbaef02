// Device entry of the convolution with quantized weights: the multistage GEMM, whose rows of A are
// pixels and whose scales repeat with every tap.
#pragma once
#include "conv/config.cuh"
#include "epilogue/tile_output.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/dynamic_shared.cuh"
#include "mainloop/multistage_mainloop.cuh"
#include "mainloop/pixel_operand.cuh"

namespace mixed_gemm {

// Finds the row of the scales, which all taps share, for a part of K.
struct TapGroupRows {
  cutlass::FastDivmod parts_per_tap;
  GroupRows in_tap;
  __device__ int operator()(int part) const {
    int tap, rest;
    parts_per_tap(tap, rest, part);
    return in_tap(rest);
  }
};

template <typename Config>
using ConvCopy =
    PixelCopy<Config::kTile.m, Config::kSliceThreads, Config::kKWarps, /*kPadded=*/false>;

template <typename Config>
using ConvGemm = TileGemm<Config, MultistageMainloop<Config, ConvCopy<Config>, TapGroupRows>,
                          TileOutput<typename Config::Element, typename Config::Factor>>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads,
                                  conv_blocks_per_sm(Config::kTile, Config::kScales))
    conv_kernel(const __grid_constant__ typename ConvGemm<Config>::Params params) {
  run_in_dynamic_shared<ConvGemm<Config>>(params);
}

}  // namespace mixed_gemm
