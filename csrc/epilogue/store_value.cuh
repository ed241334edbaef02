// One output of a float type that is chosen at run time.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace mixed_gemm {

__device__ inline void store_value(void* d, ElementType type, int64_t at, float value) {
  if (type == ElementType::kFloat16) {
    static_cast<cutlass::half_t*>(d)[at] = cutlass::half_t(value);
  } else if (type == ElementType::kBFloat16) {
    static_cast<cutlass::bfloat16_t*>(d)[at] = cutlass::bfloat16_t(value);
  } else {
    static_cast<float*>(d)[at] = value;
  }
}

}  // namespace mixed_gemm
