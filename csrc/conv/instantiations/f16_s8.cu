#include "conv/tables.cuh"

namespace mixed_gemm {
template const ConvKernels::Launchers&
ConvKernels::launchers<ElementType::kFloat16, WeightType::kInt8>(int);
}  // namespace mixed_gemm
