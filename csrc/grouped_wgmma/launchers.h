// The launcher of each of kGroupedWgmmaRows as plain function pointers.
#pragma once
#include <array>

#include "core/build.h"
#include "grouped/launch.h"
#include "grouped_wgmma/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer (grid/launcher_table.h).
struct GroupedWgmmaKernels {
  using Launchers = std::array<GroupedLaunch, kNumGroupedWgmma>;
  static constexpr int kModes = kNumWgmmaModes;
  // There are none in builds without sm_90a, where why_not lets nobody come here.
  static constexpr bool has(WeightType weight, int mode) {
    return this_build().wgmma && is_grouped_wgmma_compiled(weight, mode);
  }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const GroupedWgmmaKernels::Launchers& grouped_wgmma_launchers(ElementType element,
                                                              WeightType weight, int mode);

}  // namespace mixed_gemm
