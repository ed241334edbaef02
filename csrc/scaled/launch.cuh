// Launchers of the scaled GEMMs: templates end here.
#pragma once
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "grid/scaled_reduce.h"
#include "scaled/kernel.cuh"

namespace mixed_gemm {

template <typename Config>
typename ScaledMm<Config>::Params scaled_mm_params(const ScaledMmProblem& p, const Work& work) {
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  using Gemm = ScaledMm<Config>;
  using CopyA = RowCopy<Config::kTile.m, Config::kThreads>;
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  using Sum = typename Config::Sum;
  const int lines = static_cast<int>(ceil_div(k, kScaledTileK));
  return typename Gemm::Params{
      {CopyA::params(p.a, p.lda, m, k), CopyB::params(p.b, p.ldb, n, k)},
      {epilogue_args(p), p.d, m, n, static_cast<Sum*>(work.partials), partial_stride(n)},
      WorkSplit::make(work.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                      static_cast<int>(ceil_div(n, Config::kTile.n)), lines, work.parts()),
      work.sums(),
      work.flags};
}

// CUTLASS's own kernel of a tile, for problems whose K nobody splits. Only plain_launch.cuh has
// any: its headers take 4 s of a source's compilation for each architecture.
template <typename Config>
struct PlainLaunch {
  static bool takes(const ScaledMmProblem&, const Work&) { return false; }
  static int launch(const ScaledMmProblem&, const Work&) { return cudaErrorInvalidValue; }
};

template <typename Config>
int launch_scaled_mm(const ScaledMmProblem& p, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename ScaledMm<Config>::SharedStorage);
  static_assert(kSmemBytes == scaled_smem_bytes(Config::kTile),
                "why_not filters by scaled_smem_bytes()");
  if (PlainLaunch<Config>::takes(p, work)) return PlainLaunch<Config>::launch(p, work);
  const auto params = scaled_mm_params<Config>(p, work);
  KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  shape.even = work.pdl;
  return launch_kernel(scaled_mm_kernel<Config>, shape, params);
}

template <typename Sum>
int launch_scaled_reduce(const ScaledMmProblem& p, const Work& work) {
  constexpr int kThreads = 256;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const int64_t threads = m * ceil_div(n, kReducedColumns);
  const ScaledReduction<Sum> reduction{epilogue_args(p),
                                       static_cast<const Sum*>(work.partials),
                                       partial_stride(n),
                                       work.slices,
                                       m,
                                       n,
                                       p.d};
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(threads, kThreads)));
  shape.threads = kThreads;
  shape.stream = work.stream;
  shape.even = work.pdl;
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
