// Launchers of the convolution: templates end here (see launch.cuh).
#pragma once
#include <array>
#include <utility>

#include "conv/args.h"
#include "conv/config.h"
#include "conv/kernel.cuh"
#include "grid/launch.cuh"

namespace mixed_gemm {

template <typename Config>
typename ConvGemm<Config>::Params conv_params(const ConvArgs& conv) {
  using Element = typename Config::Element;
  const GemmArgs& args = conv.gemm;
  const int part = scale_rows(Config::kMode) > 1 ? kMmaK : kTileK;
  const int parts_per_tap = static_cast<int>(ceil_div(conv.channels_per_tap, part));
  const int parts_per_group = static_cast<int>(ceil_div(args.group_size, part));
  const int k_tiles = static_cast<int>(ceil_div(args.k, kTileK));
  constexpr int kBytes = sizeof(Element);

  typename ConvGemm<Config>::Params params;
  params.mainloop = {
      ConvCopy<Config>::params(conv.shape, args.a, conv.pixel_channels * kBytes,
                               conv.channels_per_tap * kBytes),
      WeightCopy<Config>::params(args.b_packed, static_cast<int>(round_up(args.n, kPadN)), k_tiles),
      {static_cast<const Element*>(args.scales),
       static_cast<const Element*>(args.zeros),
       args.scale_stride,
       args.n,
       {cutlass::FastDivmod(parts_per_tap), {cutlass::FastDivmod(parts_per_group), args.groups}}},
      k_tiles,
      args.zero_mode};
  params.output.output = {nullptr, static_cast<const Element*>(args.bias),
                          static_cast<Element*>(args.d), args.n, args.activation};
  params.output.m = args.m;
  params.output.partial_stride = round_up(args.n, kOutputsPerAccess);
  params.work =
      WorkSplit::make(args.split, static_cast<int>(ceil_div(args.m, Config::kTile.m)),
                      static_cast<int>(ceil_div(args.n, Config::kTile.n)), k_tiles, args.slices);
  params.output.partials = params.slots = args.partials;
  params.flags = args.flags;
  return params;
}

template <typename Config>
int launch_conv(const ConvArgs& args) {
  constexpr int kSmemBytes = sizeof(typename ConvGemm<Config>::SharedStorage);
  static_assert(kSmemBytes == conv_smem_bytes(Config::kTile, Config::kBits, Config::kMode),
                "why_not filters by conv_smem_bytes()");
  const auto params = conv_params<Config>(args);
  const auto cluster =
      static_cast<unsigned>(args.gemm.split == SplitK::kCluster ? params.work.slices : 1);
  // 1.0 to 1.3 us less behind a kernel that lets it start, whatever the grid; 0.5 us more behind
  // one that does not (H200, all layers of ResNet-50 at batch 1).
  return launch_kernel(conv_kernel<Config>,
                       {dim3(params.work.workers), Config::kThreads, args.gemm.stream, kSmemBytes,
                        dim3(cluster), args.gemm.early_start.sms > 0, args.gemm.early_start},
                       params);
}

// One launcher per row of kConvTileConfigs.
template <typename Element, int kBits, ScaleMode kMode, int... kRows>
constexpr std::array<ConvLaunch, kNumConvTileConfigs> conv_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_conv<ConvConfig<Element, kBits, kMode, kRows>>...};
}

template <typename Element, int kBits, ScaleMode kMode>
constexpr auto kConvLaunchers =
    conv_launchers<Element, kBits, kMode>(std::make_integer_sequence<int, kNumConvTileConfigs>());

}  // namespace mixed_gemm
