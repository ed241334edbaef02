// The launch of CUTLASS's own kernel for tiles of int8. It was never measured with fp8, since the
// GPUs before Hopper that have it (sm_89) are not at hand.
#pragma once
#include "scaled/launch.cuh"
#include "scaled/plain_kernel.cuh"

namespace mixed_gemm {

template <int kRow>
struct PlainLaunch<DirectInt8Config<ScaledTiles, kRow>> {
  using Config = DirectInt8Config<ScaledTiles, kRow>;
  static constexpr bool kExists = includes(Config::kTile.plain, ForModes::kAll);

  static bool takes(const ScaledMmProblem& p, const Work& work) {
    return kExists && work.split == SplitK::kNone && fits_plain_grid<Config>(p.n);
  }

  static int launch(const ScaledMmProblem& p, const Work& work) {
    if constexpr (kExists) {
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
    return cudaErrorInvalidValue;  // takes() lets nobody come here
  }
};

}  // namespace mixed_gemm
