#include "grid/launcher_table.h"
#include "multistage/launchers.h"

namespace mixed_gemm {

const MultistageKernels::Launchers& multistage_launchers(ElementType element, WeightType weight,
                                                         int mode) {
  return launchers_of<MultistageKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
