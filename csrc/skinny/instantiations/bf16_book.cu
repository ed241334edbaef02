#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyKernels::Launchers&
SkinnyKernels::launchers<ElementType::kBFloat16, WeightType::kNF4>(int);
}  // namespace mixed_gemm
