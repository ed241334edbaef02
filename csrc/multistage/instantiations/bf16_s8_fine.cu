#include "multistage/tables.cuh"

namespace mixed_gemm {
template const MultistageKernels::Launchers& MultistageKernels::launchers_of_part<
    ElementType::kBFloat16, WeightType::kInt8, /*kSeveralRows=*/true>(int);
}  // namespace mixed_gemm
