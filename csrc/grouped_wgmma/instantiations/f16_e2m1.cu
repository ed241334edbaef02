#include "grouped_wgmma/tables.cuh"

namespace mixed_gemm {
template const GroupedWgmmaKernels::Launchers&
GroupedWgmmaKernels::launchers<ElementType::kFloat16, WeightType::kE2M1>(int);
}  // namespace mixed_gemm
