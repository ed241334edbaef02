// The gated activation of one pair of numbers in fp32, on host and device.
#pragma once
#include "epilogue/activation.h"
#include "problem/gated_activation.h"

namespace mixed_gemm {

// A NaN is kept: no comparison with it is true.
MIXED_GEMM_HOST_DEVICE float gated(const Gate& by, float gate, float up) {
  gate = gate > by.limit ? by.limit : gate;
  up = up > by.limit ? by.limit : (up < -by.limit ? -by.limit : up);
  switch (by.gating) {
    case Gating::kSilu:
      return activate(Activation::kSilu, gate) * up;
    case Gating::kGelu:
      return activate(Activation::kGelu, gate) * up;
    case Gating::kGeluTanh:
      return activate(Activation::kGeluTanh, gate) * up;
    case Gating::kRelu:
      return activate(Activation::kRelu, gate) * up;
    case Gating::kSwigluOai:
      break;
  }
  return gate / (1.f + expf(-by.alpha * gate)) * (up + 1.f);
}

}  // namespace mixed_gemm
