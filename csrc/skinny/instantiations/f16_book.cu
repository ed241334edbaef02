#include "skinny/tables.cuh"

namespace mixed_gemm {
template const SkinnyKernels::Launchers&
SkinnyKernels::launchers<ElementType::kFloat16, WeightType::kNF4>(int);
}  // namespace mixed_gemm
