// Vocabulary of the quantization: how a weight is stored and what its real value is.
#pragma once
#include <cstdint>

#include "core/scale_form.h"
#include "core/weight_type.h"

namespace mixed_gemm {

enum class ElementType : int { kFloat16, kBFloat16, kFloat32 };
constexpr const char* kElementTypeNames[] = {"float16", "bfloat16", "float32"};

enum class Activation : int { kIdentity, kRelu, kRelu6, kGelu, kGeluTanh, kSilu };
constexpr const char* kActivationNames[] = {"identity", "relu",      "relu6",
                                            "gelu",     "gelu_tanh", "silu"};

struct QuantScheme {
  WeightType weight = WeightType::kInt4;
  ScaleForm scales;
};
constexpr QuantScheme integer_scheme(WeightType weight, int64_t group, ZeroMode zeros) {
  return {weight, {ScaleType::kActivations, group, zeros}};
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace mixed_gemm
