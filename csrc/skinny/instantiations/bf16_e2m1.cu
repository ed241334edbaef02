#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyKernels::Launchers&
SkinnyKernels::launchers<ElementType::kBFloat16, WeightType::kE2M1>(int);
}  // namespace mixed_gemm
