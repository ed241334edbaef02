#include "grid/launcher_table.h"
#include "grouped_skinny/launchers.h"

namespace mixed_gemm {

const GroupedSkinnyKernels::Launchers& grouped_skinny_launchers(ElementType element,
                                                                WeightType weight, int mode) {
  return launchers_of<GroupedSkinnyKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
