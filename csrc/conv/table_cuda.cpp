#include "conv/launchers.h"
#include "grid/launcher_table.h"

namespace mixed_gemm {

const ConvKernels::Launchers& conv_launchers(ElementType element, WeightType weight, int mode) {
  return launchers_of<ConvKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
