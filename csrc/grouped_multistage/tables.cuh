// Templates of the grouped multistage family end here: one launch per compiled kernel.
#pragma once
#include <utility>

#include "dequant/cutlass_element.cuh"
#include "grouped_multistage/kernel.cuh"
#include "grouped_multistage/launchers.h"
#include "multistage/launch.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_grouped_multistage(const GroupedGemmProblem& problem, const GroupedWorkload& work) {
  using Gemm = GroupedMixedGemm<Config>;
  constexpr int kSmemBytes = sizeof(typename Gemm::SharedStorage);
  const GemmProblem& p = problem.gemm;
  constexpr int kRows = scale_rows(Config::kScales);
  if (!scales_fit(p, Config::kScales.zeros, kRows > 0 ? kTileK / kRows : 0)) {
    return cudaErrorInvalidValue;
  }
  const auto one = kernel_params<Config>(p, work);
  OneTile tile;  // whose first row the kernel finds
  tile.k_tiles = one.mainloop.k_tiles;
  tile.first_row = 0;
  const GroupedTileParams<Config> params{{one.mainloop, one.output, tile, nullptr, nullptr},
                                         work.rows,
                                         work.row_blocks,
                                         problem.packed_stride(),
                                         problem.scale_stride()};
  KernelLaunch shape = launch_of(work, 1, Config::kThreads, kSmemBytes);
  shape.grid = dim3(static_cast<unsigned>(ceil_div(p.n, Config::kTile.n)),
                    static_cast<unsigned>(work.most_row_blocks + 1));
  shape.even = work.pdl;
  return launch_kernel(grouped_mixed_gemm_kernel<Config>, shape, params);
}

template <typename Element, typename Weight, int kMode, int... kRows>
constexpr GroupedMultistageKernels::Launchers grouped_multistage_row_launchers(
    std::integer_sequence<int, kRows...>) {
  if constexpr (is_grouped_multistage_compiled(Weight::kType, kMode)) {
    return {launch_grouped_multistage<MultistageConfig<
        Element, Weight, compiled_mode_index(kTileConfigs[kGroupedTileRows[kRows]], kMode),
        kGroupedTileRows[kRows]>>...};
  } else {
    return {};
  }
}

template <typename Element, typename Weight, int... kModes>
const GroupedMultistageKernels::Launchers& grouped_multistage_mode_launchers(
    int mode, std::integer_sequence<int, kModes...>) {
  static constexpr GroupedMultistageKernels::Launchers kTable[] = {
      grouped_multistage_row_launchers<Element, Weight, kModes>(
          std::make_integer_sequence<int, kNumGroupedTiles>())...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const GroupedMultistageKernels::Launchers& GroupedMultistageKernels::launchers(int mode) {
  return grouped_multistage_mode_launchers<typename CutlassElement<kElement>::Type,
                                           WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumMultistageModes>());
}

}  // namespace mixed_gemm
