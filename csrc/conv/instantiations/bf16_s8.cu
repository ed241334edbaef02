#include "conv/tables.cuh"

namespace mixed_gemm {
template const ConvKernels::Launchers&
ConvKernels::launchers<ElementType::kBFloat16, WeightType::kInt8>(int);
}  // namespace mixed_gemm
