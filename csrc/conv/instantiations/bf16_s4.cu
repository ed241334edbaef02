#include "conv/tables.cuh"

namespace mixed_gemm {
template const ConvLaunchers& conv_launchers<ElementType::kBFloat16, 4>(ScaleMode);
}  // namespace mixed_gemm
