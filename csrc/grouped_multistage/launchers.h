// The launcher of each of kGroupedTileRows as plain function pointers.
#pragma once
#include <array>

#include "grouped/launch.h"
#include "grouped_multistage/config.h"

namespace mixed_gemm {

// The kernels that instantiation files offer (grid/launcher_table.h).
struct GroupedMultistageKernels {
  using Launchers = std::array<GroupedLaunch, kNumGroupedTiles>;
  static constexpr int kModes = kNumMultistageModes;
  static constexpr bool has(WeightType weight, int mode) {
    return is_grouped_multistage_compiled(weight, mode);
  }

  template <ElementType kElement, WeightType kWeight>
  static const Launchers& launchers(int mode);
};

const GroupedMultistageKernels::Launchers& grouped_multistage_launchers(ElementType element,
                                                                        WeightType weight,
                                                                        int mode);

}  // namespace mixed_gemm
