#include "multistage/tables.cuh"

namespace mixed_gemm {
template const MultistageKernels::Launchers& MultistageKernels::launchers_of_part<
    ElementType::kFloat16, WeightType::kNF4, /*kSeveralRows=*/true>(int);
template const MultistageKernels::Launchers& MultistageKernels::launchers_of_part<
    ElementType::kFloat16, WeightType::kNF4, /*kSeveralRows=*/false>(int);
}  // namespace mixed_gemm
