// Templates of the scaled wgmma kernels end here.
#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "grid/launch.cuh"
#include "grid/scaled_reduce.h"
#include "hopper/specialized_gemm.cuh"
#include "hopper/tensor_map.h"
#include "scaled_wgmma/launchers.h"
#include "scaled_wgmma/mainloop.cuh"
#include "scaled_wgmma/output.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_wgmma_scaled(const ScaledMmProblem& p, const Work& work) {
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k = static_cast<int>(p.k);
  using Gemm = SpecializedGemm<Config, WgmmaScaledMainloop<Config>, WgmmaScaledOutput<Config>>;
  constexpr int kSmemBytes = sizeof(typename Gemm::SharedStorage);
  static_assert(kSmemBytes <= wgmma_scaled_smem_bytes(Config::kTile),
                "why_not filters by wgmma_scaled_smem_bytes()");
  typename Gemm::Params params;
  const BoxedMatrix tokens{p.a, 1, k, m, p.lda, kScaledTileK, Config::kTile.m, true};
  const BoxedMatrix weights{p.b, 1, k, n, p.ldb, kScaledTileK, Config::kTile.n, true};
  int error = make_tensor_map(tokens, params.copies.tokens);
  if (error == 0) error = make_tensor_map(weights, params.copies.weights);
  if (error != 0) return error;
  if constexpr (Config::Operand::kBlocks) {
    static_cast<BlockScaleArgs&>(params.copies) = {p.scale_a,
                                                   p.scale_b,
                                                   static_cast<int>(p.scale_a_stride),
                                                   static_cast<int>(p.scale_b_stride),
                                                   m,
                                                   static_cast<int>(ceil_div(n, kScaleBlock))};
  }
  params.output.p = {epilogue_args(p), p.d, m, n, static_cast<typename Config::Sum*>(work.partials),
                     partial_stride(n)};
  constexpr int64_t kLargestProduct = 128 * 128;
  params.output.room = std::numeric_limits<int32_t>::max() - kLargestProduct * k;
  params.work = WorkSplit::make(work.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                                static_cast<int>(ceil_div(n, Config::kTile.n)),
                                static_cast<int>(ceil_div(k, kScaledTileK)), work.parts());
  params.slots = work.sums();
  params.flags = work.flags;
  params.blocks = std::min(work.resident, params.work.workers);
  KernelLaunch shape = launch_of(work, params.blocks, Config::kThreads, kSmemBytes);
  shape.even = work.pdl;
  return launch_kernel(specialized_gemm_kernel<Gemm, Config>, shape, params);
}

// The launcher of a row: null where why_not refuses all problems.
template <typename Config>
constexpr ScaledMmLaunch wgmma_scaled_launcher() {
  if constexpr (has_few_rows(Config::kTile) && !Config::Operand::kPromotes) {
    return nullptr;
  } else {
    return launch_wgmma_scaled<Config>;
  }
}

// One launcher per row of kWgmmaScaledTileConfigs.
template <typename Operand, int... kRows>
constexpr WgmmaScaledLaunchers wgmma_scaled_row_launchers(std::integer_sequence<int, kRows...>) {
  return {wgmma_scaled_launcher<WgmmaScaledConfig<Operand, kRows>>()...};
}

template <typename Operand>
constexpr WgmmaScaledLaunchers kWgmmaScaledLaunchers = wgmma_scaled_row_launchers<Operand>(
    std::make_integer_sequence<int, kNumWgmmaScaledTileConfigs>());

}  // namespace mixed_gemm
