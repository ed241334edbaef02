#include "grid/launcher_table.h"
#include "wgmma/launchers.h"

namespace mixed_gemm {

const WgmmaKernels::Launchers& wgmma_launchers(ElementType element, WeightType weight, int mode) {
  return launchers_of<WgmmaKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
