#include "grouped_multistage/tables.cuh"

namespace mixed_gemm {
template const GroupedMultistageKernels::Launchers&
GroupedMultistageKernels::launchers<ElementType::kBFloat16, WeightType::kE4M3>(int);
}  // namespace mixed_gemm
