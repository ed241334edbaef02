#include "grid/launcher_table.h"
#include "grouped_multistage/launchers.h"

namespace mixed_gemm {

const GroupedMultistageKernels::Launchers& grouped_multistage_launchers(ElementType element,
                                                                        WeightType weight,
                                                                        int mode) {
  return launchers_of<GroupedMultistageKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
