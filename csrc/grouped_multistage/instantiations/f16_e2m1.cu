#include "grouped_multistage/tables.cuh"

namespace mixed_gemm {
template const GroupedMultistageKernels::Launchers&
GroupedMultistageKernels::launchers<ElementType::kFloat16, WeightType::kE2M1>(int);
}  // namespace mixed_gemm
