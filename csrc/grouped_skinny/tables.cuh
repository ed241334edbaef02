// Templates of the grouped skinny family end here: one launch per compiled kernel.
#pragma once
#include <utility>

#include "dequant/cutlass_element.cuh"
#include "grouped_skinny/kernel.cuh"
#include "grouped_skinny/launchers.h"
#include "skinny/launch.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_grouped_skinny(const GroupedGemmProblem& problem, const GroupedWorkload& work) {
  const GemmProblem& p = problem.gemm;
  if (!skinny_scales_fit<Config>(p)) return cudaErrorInvalidValue;
  const GroupedSkinnyParams<Config> params{skinny_params<Config>(p, work.slices), work.rows,
                                           work.row_blocks, problem.packed_stride(),
                                           problem.scale_stride()};
  // One more along y, for the rows of no expert.
  const KernelLaunch shape = skinny_shape<Config>(p.n, work.most_row_blocks + 1, work);
  return launch_kernel(grouped_skinny_kernel<Config>, shape, params);
}

template <typename Element, typename Weight, int kMode, int kRow>
constexpr GroupedLaunch grouped_skinny_launcher() {
  if constexpr (is_grouped_skinny_compiled(kRow, Weight::kType, kMode)) {
    return launch_grouped_skinny<SkinnyGemmConfig<Element, Weight, kMode, kGroupedSkinnyRows[kRow],
                                                  /*kGrouped=*/true>>;
  }
  return nullptr;
}

template <typename Element, typename Weight, int kMode, int... kRows>
constexpr GroupedSkinnyKernels::Launchers grouped_skinny_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {grouped_skinny_launcher<Element, Weight, kMode, kRows>()...};
}

template <typename Element, typename Weight, int... kModes>
const GroupedSkinnyKernels::Launchers& grouped_skinny_mode_launchers(
    int mode, std::integer_sequence<int, kModes...>) {
  static constexpr GroupedSkinnyKernels::Launchers kTable[] = {
      grouped_skinny_row_launchers<Element, Weight, kModes>(
          std::make_integer_sequence<int, kNumGroupedSkinny>())...};
  return kTable[mode];
}

template <ElementType kElement, WeightType kWeight>
const GroupedSkinnyKernels::Launchers& GroupedSkinnyKernels::launchers(int mode) {
  return grouped_skinny_mode_launchers<typename CutlassElement<kElement>::Type, WeightOf<kWeight>>(
      mode, std::make_integer_sequence<int, kNumSkinnyModes>());
}

}  // namespace mixed_gemm
