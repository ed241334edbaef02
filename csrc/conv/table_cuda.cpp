#include "conv/launchers.h"
#include "grid/launcher_table.h"

namespace mixed_gemm {

const ConvKernels::Launchers& conv_launchers(ElementType element, WeightType weight,
                                             ScaleMode mode) {
  return launchers_of<ConvKernels>(element, weight, static_cast<int>(mode));
}

}  // namespace mixed_gemm
