// Launchers of the scaled GEMMs: templates end here (see launch.cuh).
#pragma once
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "grid/scaled_mm_args.h"
#include "scaled/kernel.cuh"

namespace mixed_gemm {

template <typename Config>
typename ScaledMm<Config>::Params scaled_mm_params(const ScaledMmArgs& args) {
  using Gemm = ScaledMm<Config>;
  using CopyA = RowCopy<Config::kTile.m, Config::kThreads>;
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  using Sum = typename Config::Sum;
  const int lines = static_cast<int>(ceil_div(args.k, kScaledTileK));
  return typename Gemm::Params{
      {CopyA::params(args.a, args.a_stride, args.m, args.k),
       CopyB::params(args.b, args.b_stride, args.n, args.k)},
      {args.epilogue, args.d, args.m, args.n, static_cast<Sum*>(args.partials),
       round_up(args.n, kOctet)},
      WorkSplit::make(args.split, static_cast<int>(ceil_div(args.m, Config::kTile.m)),
                      static_cast<int>(ceil_div(args.n, Config::kTile.n)), lines, args.slices),
      static_cast<float*>(args.partials),
      args.flags};
}

template <typename Config>
int launch_scaled_mm(const ScaledMmArgs& args) {
  constexpr int kSmemBytes = sizeof(typename ScaledMm<Config>::SharedStorage);
  static_assert(kSmemBytes == scaled_smem_bytes(Config::kTile),
                "why_not filters by scaled_smem_bytes()");
  const auto params = scaled_mm_params<Config>(args);
  const auto cluster =
      static_cast<unsigned>(args.split == SplitK::kCluster ? params.work.slices : 1);
  return launch_kernel(scaled_mm_kernel<Config>,
                       {dim3(params.work.workers), Config::kThreads, args.stream, kSmemBytes,
                        dim3(cluster), false, args.early_start},
                       params);
}

template <typename Sum>
int launch_scaled_reduce(const ScaledReduceArgs& args) {
  constexpr int kThreads = 256;
  const int64_t threads = args.m * ceil_div(args.n, kReducedColumns);
  const ScaledReduction<Sum> reduction{args.epilogue,
                                       static_cast<const Sum*>(args.partials),
                                       args.partial_stride,
                                       args.slices,
                                       args.m,
                                       args.n,
                                       args.d};
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(threads, kThreads)));
  shape.threads = kThreads;
  shape.stream = args.stream;
  shape.even = args.early_start;
  return launch_kernel(scaled_reduce_kernel<Sum>, shape, reduction);
}

// One launcher per row of kScaledTileConfigs.
template <template <int> class Config, int... kRows>
constexpr std::array<ScaledMmLaunch, kNumScaledTileConfigs> scaled_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_scaled_mm<Config<kRows>>...};
}

template <template <int> class Config>
constexpr auto kScaledLaunchers =
    scaled_launchers<Config>(std::make_integer_sequence<int, kNumScaledTileConfigs>());

}  // namespace mixed_gemm
