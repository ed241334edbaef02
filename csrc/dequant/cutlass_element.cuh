// The C++ type behind an ElementType that tensor cores multiply.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace mixed_gemm {

template <ElementType kElement>
struct CutlassElement;
template <>
struct CutlassElement<ElementType::kFloat16> {
  using Type = cutlass::half_t;
};
template <>
struct CutlassElement<ElementType::kBFloat16> {
  using Type = cutlass::bfloat16_t;
};

}  // namespace mixed_gemm
