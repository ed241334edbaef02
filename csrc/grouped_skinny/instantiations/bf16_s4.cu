#include "grouped_skinny/tables.cuh"

namespace mixed_gemm {
template const GroupedSkinnyKernels::Launchers&
GroupedSkinnyKernels::launchers<ElementType::kBFloat16, WeightType::kInt4>(int);
}  // namespace mixed_gemm
