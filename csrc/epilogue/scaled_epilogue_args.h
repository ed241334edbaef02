// What the trees of scaled_epilogue.cuh are made from: plain data, no CUTLASS.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

struct ScaleVector {
  const float* values = nullptr;
  int stride = 0;  // 0: one value for all, 1: one each
};

// Which tree.
enum class EpilogueKind : int { kScaled, kBias, kAzp, kAzpPerToken };
constexpr int kNumEpilogueKinds = 4;
constexpr const char* kEpilogueNames[] = {"ScaledEpilogue", "ScaledEpilogueBias",
                                          "ScaledEpilogueAzp", "ScaledEpilogueAzpPerToken"};

struct ScaledEpilogueArgs {
  EpilogueKind kind = EpilogueKind::kScaled;
  ScaleVector scale_a, scale_b;
  const void* bias = nullptr;        // [n] of out_type, or null
  const int32_t* azp_adj = nullptr;  // [n]
  const int32_t* azp = nullptr;      // [m]
  ElementType out_type = ElementType::kFloat16;
};

}  // namespace mixed_gemm
