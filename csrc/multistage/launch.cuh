// Templates end here: one launch per compiled kernel, behind a plain function pointer.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "grid/gemm_args.h"
#include "grid/launch.cuh"
#include "multistage/config.cuh"
#include "multistage/kernel.cuh"

namespace mixed_gemm {

template <typename Config>
typename MixedGemm<Config>::Params kernel_params(const GemmArgs& args) {
  using Kernel = MixedGemm<Config>;
  using Element = typename Config::Element;
  const auto* scales = static_cast<const Element*>(args.scales);
  const int k_tiles = static_cast<int>(ceil_div(args.k, kTileK));
  constexpr int k_per_scale_row = kTileK / std::max(1, scale_rows(Config::kMode));
  const int scale_rows_per_group = static_cast<int>(ceil_div(args.group_size, k_per_scale_row));

  typename Kernel::Params params;
  params.mainloop = {
      ActivationCopy<Config>::params(static_cast<const Element*>(args.a), args.a_stride, args.m,
                                     args.k),
      WeightCopy<Config>::params(args.b_packed, static_cast<int>(round_up(args.n, kPadN)), k_tiles),
      {scales,
       static_cast<const Element*>(args.zeros),
       args.scale_stride,
       args.n,
       {cutlass::FastDivmod(scale_rows_per_group), args.groups}},
      k_tiles,
      args.zero_mode};
  const bool in_epilogue = Config::kMode == ScaleMode::kPerChannel;
  params.output.output = {in_epilogue ? scales : nullptr, static_cast<const Element*>(args.bias),
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
int launch(const GemmArgs& args) {
  using Kernel = MixedGemm<Config>;
  constexpr int kSmemBytes = sizeof(typename Kernel::SharedStorage);
  static_assert(kSmemBytes == smem_bytes(Config::kTile, Config::kBits, Config::kMode),
                "why_not filters by smem_bytes()");
  constexpr int kRows = scale_rows(Config::kMode);
  if (!scales_fit(args, has_zeros(Config::kMode), kRows > 0 ? kTileK / kRows : 0)) {
    return cudaErrorInvalidValue;
  }
  const auto params = kernel_params<Config>(args);
  const auto cluster =
      static_cast<unsigned>(args.split == SplitK::kCluster ? params.work.slices : 1);
  return launch_kernel(mixed_gemm_kernel<Config>,
                       {dim3(params.work.workers), Config::kThreads, args.stream, kSmemBytes,
                        dim3(cluster), false, args.early_start},
                       params);
}

template <typename Element, int kBits, ScaleMode kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumTileConfigs> launchers(std::integer_sequence<int, kRows...>) {
  return {launch<
      MultistageConfig<Element, kBits, compiled_mode(kTileConfigs[kRows], kMode), kRows>>...};
}

// One launcher per row of kTileConfigs.
template <typename Element, int kBits, ScaleMode kMode>
constexpr auto kLaunchers =
    launchers<Element, kBits, kMode>(std::make_integer_sequence<int, kNumTileConfigs>());

}  // namespace mixed_gemm
