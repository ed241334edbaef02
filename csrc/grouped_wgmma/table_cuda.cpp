#include "grid/launcher_table.h"
#include "grouped_wgmma/launchers.h"

namespace mixed_gemm {

const GroupedWgmmaKernels::Launchers& grouped_wgmma_launchers(ElementType element,
                                                              WeightType weight, int mode) {
  return launchers_of<GroupedWgmmaKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
