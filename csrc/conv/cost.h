// The predicted time of an implicit GEMM, in microseconds.
#pragma once
#include "core/choice.h"
#include "problem/conv.h"

namespace mixed_gemm {

double predict_implicit_us(const Choice& choice, const ConvProblem& problem,
                           const DeviceInfo& device);

}  // namespace mixed_gemm
