// Launchers of the scaled GEMMs: templates end here.
#pragma once
#include <array>
#include <type_traits>
#include <utility>

#include "grid/launch.cuh"
#include "grid/scaled_reduce.h"
#include "scaled/kernel.cuh"
#include "scaled/plain_kernel.cuh"

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

// Whether the tile has CUTLASS's kernel too: with int8. Of fp8 it was never measured, since the
// GPUs before Hopper that have it (sm_89) are not at hand.
template <typename Config>
constexpr bool kHasPlain =
    includes(Config::kTile.plain, ForModes::kAll) && std::is_integral_v<typename Config::Sum>;

// Whether CUTLASS's kernel runs it: nobody splits K.
template <typename Config>
bool is_plain_scaled(const ScaledMmProblem& p, const Work& work) {
  return kHasPlain<Config> && work.split == SplitK::kNone && fits_plain_grid<Config>(p.n);
}

template <typename Config>
int launch_plain_scaled(const ScaledMmProblem& p, const Work& work) {
  if constexpr (kHasPlain<Config>) {
    using Kernel = PlainScaled<Config>;
    constexpr int kSmemBytes = sizeof(typename Kernel::SharedStorage);
    static_assert(kSmemBytes <= scaled_smem_bytes(Config::kTile),
                  "why_not filters by scaled_smem_bytes()");
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
    const auto params = plain_params<Kernel>(
        m, n, k, Kernel::FusionCallbacks::arguments(epilogue_args(p), {p.d, p.out, m, n}),
        scaled_mm_params<Config>(p, work).mainloop);
    return launch_plain_kernel<Config>(plain_scaled_kernel<Config>, params, work, kSmemBytes);
  }
  return cudaErrorInvalidValue;  // is_plain_scaled lets nobody come here
}

template <typename Config>
int launch_scaled_mm(const ScaledMmProblem& p, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename ScaledMm<Config>::SharedStorage);
  static_assert(kSmemBytes == scaled_smem_bytes(Config::kTile),
                "why_not filters by scaled_smem_bytes()");
  if (is_plain_scaled<Config>(p, work)) return launch_plain_scaled<Config>(p, work);
  const auto params = scaled_mm_params<Config>(p, work);
  KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  shape.even = work.early_start;
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
  shape.even = work.early_start;
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
