// The launcher of each of kGroupedSkinnyRows as plain function pointers.
#pragma once
#include <array>

#include "grouped/launch.h"
#include "grouped_skinny/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer (grid/launcher_table.h).
struct GroupedSkinnyKernels {
  using Launchers = std::array<GroupedLaunch, kNumGroupedSkinny>;
  static constexpr int kModes = kNumSkinnyModes;
  static constexpr bool has(WeightType weight, int mode) {
    for (int row = 0; row < kNumGroupedSkinny; ++row) {
      if (is_grouped_skinny_compiled(row, weight, mode)) return true;
    }
    return false;
  }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const GroupedSkinnyKernels::Launchers& grouped_skinny_launchers(ElementType element,
                                                                WeightType weight, int mode);

}  // namespace mixed_gemm
