// Scalar activations in fp32, on host and device. Definitions are PyTorch's (torch.nn.functional).
#pragma once
#include <cmath>

#include "core/macros.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

MIXED_GEMM_HOST_DEVICE float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kRelu:
      return x < 0.f ? 0.f : x;  // keeps NaN
    case Activation::kRelu6:
      return x < 0.f ? 0.f : (x > 6.f ? 6.f : x);
    case Activation::kGelu:
      return 0.5f * x * (1.f + erff(x * 0.70710678118654752f));
    case Activation::kGeluTanh:
      return 0.5f * x * (1.f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case Activation::kSilu:
      return x / (1.f + expf(-x));
    case Activation::kIdentity:
      break;
  }
  return x;
}

}  // namespace mixed_gemm
