// The gated activation between the two products of a feed-forward layer, as plain data. No torch.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

enum class Gating : int { kSilu, kGelu, kGeluTanh, kRelu, kSwigluOai };
constexpr const char* kGatingNames[] = {"silu", "gelu", "gelu_tanh", "relu", "swiglu_oai"};

// epilogue/gate.h computes it.
struct Gate {
  Gating gating = Gating::kSilu;
  float limit = 0;  // gate is at most that, and up in -limit..limit; infinity: any number
  float alpha = 1;  // of kSwigluOai
};

struct GatedActivationProblem {
  int64_t m = 0, inner = 0;
  ElementType element = ElementType::kFloat16;
  Gate gate;
  const void* a = nullptr;  // row-major: gate (i, k) at i * a_stride + k, up `inner` behind it
  int64_t a_stride = 0;     // in elements
  void* d = nullptr;        // [m, inner], contiguous; written
};

}  // namespace mixed_gemm
