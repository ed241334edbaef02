#include "conv/launchers.h"

namespace mixed_gemm {

const ConvLaunchers& conv_launchers(ElementType element, int bits, ScaleMode mode) {
  if (element == ElementType::kFloat16) {
    return bits == 4 ? conv_launchers<ElementType::kFloat16, 4>(mode)
                     : conv_launchers<ElementType::kFloat16, 8>(mode);
  }
  return bits == 4 ? conv_launchers<ElementType::kBFloat16, 4>(mode)
                   : conv_launchers<ElementType::kBFloat16, 8>(mode);
}

}  // namespace mixed_gemm
