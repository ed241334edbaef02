#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyKernels::Launchers&
SkinnyKernels::launchers<ElementType::kBFloat16, WeightType::kE4M3>(int);
}  // namespace mixed_gemm
