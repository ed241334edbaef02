#include "grouped_skinny/tables.cuh"

namespace mixed_gemm {
template const GroupedSkinnyKernels::Launchers&
GroupedSkinnyKernels::launchers<ElementType::kFloat16, WeightType::kE4M3>(int);
}  // namespace mixed_gemm
