// Templates of the grouped wgmma family end here: one launch per compiled kernel.
#pragma once
#include <algorithm>
#include <utility>

#include "dequant/cutlass_element.cuh"
#include "grouped/work.cuh"
#include "grouped_wgmma/launchers.h"
#include "wgmma/launch.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_grouped_wgmma(const GroupedGemmProblem& problem, const GroupedWorkload& work) {
  using Kernel = WgmmaGemm<Config, GroupedWork>;
  const KernelExtents e = kernel_extents(problem.gemm);
  typename Kernel::Params params;
  const int error = fill_params<Config>(problem.gemm, problem.experts, params);
  if (error != 0) return error;
  params.work = GroupedWork::make(work.row_blocks, static_cast<int>(ceil_div(e.n, Config::kTile.n)),
                                  static_cast<int>(ceil_div(e.k, work_step_k(Config::kTile))));
  params.output.p.partials = params.slots = nullptr;
  params.flags = nullptr;
  const int64_t most_tiles = int64_t{work.most_row_blocks} * params.work.tiles_n;
  params.blocks = static_cast<int>(std::min<int64_t>(work.resident, most_tiles));
  KernelLaunch shape =
      launch_of(work, params.blocks, Config::kThreads, wgmma_kernel_bytes<Config, Kernel>());
  shape.even = work.pdl;
  return launch_kernel(specialized_gemm_kernel<Kernel, Config>, shape, params);
}

template <typename Element, typename Weight, int kMode, int... kRows>
constexpr GroupedWgmmaKernels::Launchers grouped_wgmma_row_launchers(
    std::integer_sequence<int, kRows...>) {
  if constexpr (is_grouped_wgmma_compiled(Weight::kType, kMode)) {
    return {launch_grouped_wgmma<
        WgmmaConfig<Element, Weight, kMode, kGroupedWgmmaRows[kRows], /*kGrouped=*/true>>...};
  } else {
    return {};
  }
}

template <typename Element, typename Weight, int... kModes>
const GroupedWgmmaKernels::Launchers& grouped_wgmma_mode_launchers(
    int mode, std::integer_sequence<int, kModes...>) {
  static constexpr GroupedWgmmaKernels::Launchers kTable[] = {
      grouped_wgmma_row_launchers<Element, Weight, kModes>(
          std::make_integer_sequence<int, kNumGroupedWgmma>())...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const GroupedWgmmaKernels::Launchers& GroupedWgmmaKernels::launchers(int mode) {
  return grouped_wgmma_mode_launchers<typename CutlassElement<kElement>::Type, WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumWgmmaModes>());
}

}  // namespace mixed_gemm
