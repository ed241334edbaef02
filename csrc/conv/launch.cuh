// Launchers of the convolution: templates end here.
#pragma once
#include <array>
#include <utility>

#include "conv/config.h"
#include "conv/kernel.cuh"
#include "conv/launchers.h"
#include "grid/launch.cuh"
#include "layout/conv_layout.h"

namespace mixed_gemm {

template <typename Config>
typename ConvGemm<Config>::Params conv_params(const ConvProblem& p, const Work& work) {
  using Element = typename Config::Element;
  const GemmProblem gemm = gemm_of(p);
  const int m = static_cast<int>(gemm.m), n = static_cast<int>(gemm.n);
  const int tap_channels = static_cast<int>(channels_per_tap(p.shape.in_c));
  const int part = scale_rows(Config::kScales) > 1 ? kMmaK : kTileK;
  const int parts_per_tap = static_cast<int>(ceil_div(tap_channels, part));
  const int parts_per_group = static_cast<int>(ceil_div(p.block_size, part));
  const int k_tiles = static_cast<int>(ceil_div(gemm.k, kTileK));
  constexpr int kBytes = sizeof(Element);

  typename ConvGemm<Config>::Params params;
  params.mainloop = {
      ConvCopy<Config>::params(p.shape, p.input, static_cast<int>(p.input_strides.w) * kBytes,
                               tap_channels * kBytes),
      WeightCopy<Config>::params(p.weight_packed, static_cast<int>(round_up(n, kPadN)), k_tiles),
      {static_cast<const Element*>(p.scales),
       static_cast<const Element*>(p.offsets),
       p.scale_stride,
       n,
       {cutlass::FastDivmod(parts_per_tap),
        {cutlass::FastDivmod(parts_per_group), static_cast<int>(p.blocks())}}},
      k_tiles,
      p.offsets == nullptr ? ZeroMode::kNone : ZeroMode::kAdd};
  params.output.output = {nullptr, static_cast<const Element*>(p.bias), static_cast<Element*>(p.d),
                          n, p.activation};
  params.output.m = m;
  params.output.partial_stride = round_up(n, kOutputsPerAccess);
  params.work =
      WorkSplit::make(work.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                      static_cast<int>(ceil_div(n, Config::kTile.n)), k_tiles, work.parts());
  params.output.partials = params.slots = work.sums();
  params.flags = work.flags;
  return params;
}

template <typename Config>
int launch_conv(const ConvProblem& p, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename ConvGemm<Config>::SharedStorage);
  static_assert(
      kSmemBytes == conv_smem_bytes(Config::kTile, Config::Weight::kType, Config::kScales),
      "why_not filters by conv_smem_bytes()");
  const auto params = conv_params<Config>(p, work);
  // PDL takes 1.0 to 1.3 us less behind a kernel that launches its dependents, whatever the grid;
  // 0.5 us more behind one that does not (H200, all layers of ResNet-50 at batch 1).
  KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  shape.uses_pdl = work.pdl.sms > 0;
  shape.even = work.pdl;
  return launch_kernel(conv_kernel<Config>, shape, params);
}

// One launcher per row of kConvTileConfigs.
template <typename Element, typename Weight, int kMode, int... kRows>
constexpr std::array<ConvLaunch, kNumConvTileConfigs> conv_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_conv<ConvConfig<Element, Weight, kMode, kRows>>...};
}

}  // namespace mixed_gemm
