#include "grouped_wgmma/tables.cuh"

namespace mixed_gemm {
template const GroupedWgmmaKernels::Launchers&
GroupedWgmmaKernels::launchers<ElementType::kBFloat16, WeightType::kInt8>(int);
}  // namespace mixed_gemm
