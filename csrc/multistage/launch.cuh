// Templates end here: one launch per compiled kernel, behind a plain function pointer.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "multistage/config.cuh"
#include "multistage/kernel.cuh"
#include "multistage/launchers.h"
#include "multistage/plain_kernel.cuh"

namespace mixed_gemm {

template <typename Config>
MixedGemmParams<Config> kernel_params(const GemmProblem& p, const Work& work) {
  const KernelExtents e = kernel_extents(p);
  using Element = typename Config::Element;
  const int k_tiles = static_cast<int>(ceil_div(e.k, kTileK));
  constexpr int k_per_scale_row = kTileK / std::max(1, scale_rows(Config::kScales));
  const int scale_rows_per_group = static_cast<int>(ceil_div(e.group_size, k_per_scale_row));

  MixedGemmParams<Config> params;
  params.mainloop = {
      ActivationCopy<Config>::params(static_cast<const Element*>(p.a), e.a_stride, e.m, e.k),
      WeightCopy<Config>::params(
          p.b_packed, static_cast<int>(round_up(e.n, kPadN)), k_tiles,
          code_values<typename Config::Format, typename Config::Weight>(p.scheme.weight)),
      {static_cast<const Element*>(p.scales),
       static_cast<const Element*>(p.zeros),
       p.scale_stride,
       e.n,
       {cutlass::FastDivmod(scale_rows_per_group), e.groups}},
      k_tiles,
      p.scheme.scales.zeros};
  params.output.output = {column_factor<Config>(p), static_cast<const Element*>(p.bias),
                          static_cast<Element*>(p.d), e.n, p.activation};
  params.output.m = e.m;
  params.output.partial_stride = round_up(e.n, kOutputsPerAccess);
  params.work =
      WorkSplit::make(work.split, static_cast<int>(ceil_div(e.m, Config::kTile.m)),
                      static_cast<int>(ceil_div(e.n, Config::kTile.n)), k_tiles, work.parts());
  params.output.partials = params.slots = work.sums();
  params.flags = work.flags;
  return params;
}

// Whether CUTLASS's kernel is compiled. Of other weights than integers it is not: it gains little
// where wgmma runs, and would be a fifth of their code.
template <typename Config>
constexpr bool kHasPlain =
    includes(Config::kTile.plain, Config::kScales) && Config::Weight::kIsInteger;

// Whether CUTLASS's kernel runs it: nobody splits K, and there is nothing to do behind the bias.
template <typename Config>
bool is_plain(const GemmProblem& p, const Work& work) {
  return kHasPlain<Config> && work.split == SplitK::kNone &&
         p.activation == Activation::kIdentity && fits_plain_grid<Config>(p.n);
}

template <typename Config>
int launch_plain(const GemmProblem& p, const Work& work) {
  if constexpr (kHasPlain<Config>) {
    using Gemm = PlainGemm<Config>;
    constexpr int kSmemBytes = sizeof(typename Gemm::Kernel::SharedStorage);
    static_assert(kSmemBytes <= smem_bytes(Config::kTile, Config::Weight::kType, Config::kScales),
                  "why_not filters by smem_bytes()");
    const KernelExtents e = kernel_extents(p);
    const auto params = plain_params<typename Gemm::Kernel>(
        e.m, e.n, e.k, Gemm::tree_arguments(p), kernel_params<Config>(p, work).mainloop);
    return launch_plain_kernel<Config>(plain_gemm_kernel<Config>, params, work, kSmemBytes);
  }
  return cudaErrorInvalidValue;  // is_plain lets nobody come here
}

template <typename Config>
int launch(const GemmProblem& p, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename MixedGemm<Config, SplitCode::kAll>::SharedStorage);
  static_assert(kSmemBytes == smem_bytes(Config::kTile, Config::Weight::kType, Config::kScales),
                "why_not filters by smem_bytes()");
  constexpr int kRows = scale_rows(Config::kScales);
  if (!scales_fit(p, Config::kScales.zeros, kRows > 0 ? kTileK / kRows : 0)) {
    return cudaErrorInvalidValue;
  }
  if (is_plain<Config>(p, work)) return launch_plain<Config>(p, work);
  const auto params = kernel_params<Config>(p, work);
  KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  shape.even = work.pdl;
  return launch_kernel(mixed_gemm_kernel_for<Config>(work.split), shape, params);
}

constexpr int compiled_mode_index(const TileConfig& t, int mode) {
  return mode_index(kMultistageModes, compiled_mode(t, kMultistageModes[mode]));
}

// One launcher per row of kTileConfigs.
template <typename Element, typename Weight, int kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumTileConfigs> row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch<MultistageConfig<Element, Weight, compiled_mode_index(kTileConfigs[kRows], kMode),
                                  kRows>>...};
}

}  // namespace mixed_gemm
