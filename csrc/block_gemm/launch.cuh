// Launchers of block_quant_gemm's GEMM: templates end here.
#pragma once
#include <array>
#include <utility>

#include "block_gemm/kernel.cuh"
#include "block_gemm/launchers.h"
#include "grid/launch.cuh"

namespace mixed_gemm {

template <typename Config>
auto columns_of(const BlockOperands& operands) {
  if constexpr (Config::kSumsGiven) {
    return operands.summed_columns;
  } else {
    return operands.columns;
  }
}

template <typename Config>
typename BlockGemm<Config>::Params block_gemm_params(const BlockGemmProblem& p,
                                                     const BlockOperands& o, const Work& work) {
  using CopyA = RowCopy<Config::kTile.m, Config::kThreads>;
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  const BlockForm& form = o.form;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const int k = static_cast<int>(form.k);
  const int scale_steps = static_cast<int>(ceil_div(form.k, form.scale_step_k()));
  const int steps_per_block = form.blocks > 1 ? static_cast<int>(form.padded / form.scale_step_k())
                                              : std::max(1, scale_steps);
  return {{CopyA::params(o.a, o.a_stride, m, k),
           CopyB::params(o.b, o.b_stride, n, k),
           {o.rows, columns_of<Config>(o), m, n, static_cast<int>(form.blocks), scale_steps,
            static_cast<int>(form.split_lines()), static_cast<int>(form.lines()),
            cutlass::FastDivmod(steps_per_block)}},
          {{p.d, p.element, m, n}, p.bias, p.activation},
          WorkSplit::make(work.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                          static_cast<int>(ceil_div(n, Config::kTile.n)),
                          static_cast<int>(form.split_parts()), work.parts()),
          work.sums(),
          work.flags};
}

template <typename Config>
int launch_block_gemm(const BlockGemmProblem& p, const BlockOperands& operands, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename BlockGemm<Config>::SharedStorage);
  static_assert(kSmemBytes == block_smem_bytes(Config::kTile, Config::kMode),
                "why_not filters by block_smem_bytes()");
  const auto params = block_gemm_params<Config>(p, operands, work);
  const KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  return launch_kernel(block_gemm_kernel<Config>, shape, params);
}

template <int kMode, int... kRows>
constexpr std::array<BlockGemmLaunch, kNumBlockTileConfigs> block_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_block_gemm<BlockConfig<kRows, kMode>>...};
}

// One launcher per row of kBlockTileConfigs.
template <int kMode>
constexpr auto kBlockLaunchers =
    block_launchers<kMode>(std::make_integer_sequence<int, kNumBlockTileConfigs>());

}  // namespace mixed_gemm
