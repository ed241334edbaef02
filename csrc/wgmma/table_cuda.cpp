#include "grid/launcher_table.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {

const WgmmaKernels::Launchers& wgmma_launchers(ElementType element, WeightType weight,
                                               WgmmaMode mode) {
  return launchers_of<WgmmaKernels>(element, weight, static_cast<int>(mode));
}

}  // namespace mixed_gemm
