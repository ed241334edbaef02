// Launchers of block_quant_gemm's GEMM: templates end here (see multistage/launch.cuh).
#pragma once
#include <array>
#include <utility>

#include "block_gemm/kernel.cuh"
#include "grid/launch.cuh"

namespace mixed_gemm {

template <typename Config>
typename BlockGemm<Config>::Params block_gemm_params(const BlockGemmArgs& args) {
  using CopyA = RowCopy<Config::kTile.m, Config::kThreads>;
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  const BlockForm& form = args.form;
  const int k = static_cast<int>(form.k);
  const int units = static_cast<int>(ceil_div(form.k, form.unit()));
  const int units_per_block =
      form.blocks > 1 ? static_cast<int>(form.padded / form.unit()) : std::max(1, units);
  return {{CopyA::params(args.a, args.a_stride, args.m, k),
           CopyB::params(args.b, args.b_stride, args.n, k),
           {args.rows, args.columns, args.m, args.n, static_cast<int>(form.blocks), units,
            static_cast<int>(form.split_lines()), static_cast<int>(form.lines()),
            cutlass::FastDivmod(units_per_block)}},
          {{args.d, args.element, args.m, args.n}, args.bias, args.activation},
          WorkSplit::make(args.split, static_cast<int>(ceil_div(args.m, Config::kTile.m)),
                          static_cast<int>(ceil_div(args.n, Config::kTile.n)),
                          static_cast<int>(form.split_parts()), args.slices),
          args.partials,
          args.flags};
}

template <typename Config>
int launch_block_gemm(const BlockGemmArgs& args) {
  constexpr int kSmemBytes = sizeof(typename BlockGemm<Config>::SharedStorage);
  static_assert(kSmemBytes == block_smem_bytes(Config::kTile, Config::kScaleRows),
                "why_not filters by block_smem_bytes()");
  const auto params = block_gemm_params<Config>(args);
  const auto cluster =
      static_cast<unsigned>(args.split == SplitK::kCluster ? params.work.slices : 1);
  return launch_kernel(
      block_gemm_kernel<Config>,
      {dim3(params.work.workers), Config::kThreads, args.stream, kSmemBytes, dim3(cluster)},
      params);
}

template <int kScaleRows, int... kRows>
constexpr std::array<BlockGemmLaunch, kNumBlockTileConfigs> block_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_block_gemm<BlockConfig<kRows, kScaleRows>>...};
}

// One launcher per row of kBlockTileConfigs.
template <int kScaleRows>
constexpr auto kBlockLaunchers =
    block_launchers<kScaleRows>(std::make_integer_sequence<int, kNumBlockTileConfigs>());

}  // namespace mixed_gemm
