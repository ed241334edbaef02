// Makes the element type of the arguments a template argument.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace mixed_gemm {

template <typename T>
struct Tag {
  using Type = T;
};

// Calls f(Tag<T>()) with the C++ type of an element.
template <typename F>
int with_element(ElementType element, F f) {
  switch (element) {
    case ElementType::kFloat16:
      return f(Tag<cutlass::half_t>());
    case ElementType::kBFloat16:
      return f(Tag<cutlass::bfloat16_t>());
    case ElementType::kFloat32:
      return f(Tag<float>());
  }
  return cudaErrorInvalidValue;
}

}  // namespace mixed_gemm
