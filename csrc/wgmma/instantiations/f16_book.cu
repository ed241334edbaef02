#include "wgmma/tables.cuh"

namespace mixed_gemm {
template const WgmmaKernels::Launchers&
WgmmaKernels::launchers<ElementType::kFloat16, WeightType::kNF4>(int);
}  // namespace mixed_gemm
