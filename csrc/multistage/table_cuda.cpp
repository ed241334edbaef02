#include "grid/launcher_table.h"
#include "multistage/launchers.h"

namespace mixed_gemm {

const MultistageKernels::Launchers& multistage_launchers(ElementType element, WeightType weight,
                                                         ScaleMode mode) {
  return launchers_of<MultistageKernels>(element, weight, static_cast<int>(mode));
}

}  // namespace mixed_gemm
