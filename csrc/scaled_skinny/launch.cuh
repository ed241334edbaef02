// Templates of the skinny scaled GEMMs end here.
#pragma once
#include <utility>

#include "grid/launch.cuh"
#include "grid/pdl_places.h"
#include "scaled_skinny/kernel.cuh"
#include "scaled_skinny/launchers.h"

namespace mixed_gemm {

template <typename Config>
int launch_scaled_skinny(const ScaledMmProblem& p, const Work& work) {
  using Gemm = ScaledSkinnyGemm<Config>;
  const typename Gemm::Params params{static_cast<const uint8_t*>(p.a),
                                     p.lda,
                                     static_cast<const uint8_t*>(p.b),
                                     p.ldb,
                                     static_cast<int>(p.m),
                                     static_cast<int>(p.n),
                                     static_cast<int>(p.k),
                                     epilogue_args(p),
                                     p.d};
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, Config::kN)),
                    static_cast<unsigned>(ceil_div(p.m, Config::kM)));
  shape.threads = Config::kThreads;
  shape.stream = work.stream;
  shape.uses_pdl = uses_pdl(work.pdl.sms, int64_t{shape.grid.x} * shape.grid.y, Config::kMinBlocks);
  return launch_kernel(scaled_skinny_kernel<Config>, shape, params);
}

template <template <int> class Config, int... kRows>
constexpr ScaledSkinnyLaunchers scaled_skinny_row_launchers(std::integer_sequence<int, kRows...>) {
  return {launch_scaled_skinny<Config<kRows>>...};
}

template <template <int> class Config>
constexpr auto kScaledSkinnyLaunchers =
    scaled_skinny_row_launchers<Config>(std::make_integer_sequence<int, kNumScaledSkinnyConfigs>());

}  // namespace mixed_gemm
