#include "wgmma/tables.cuh"

namespace mixed_gemm {
template const WgmmaKernels::Launchers&
WgmmaKernels::launchers<ElementType::kBFloat16, WeightType::kE2M1>(int);
}  // namespace mixed_gemm
