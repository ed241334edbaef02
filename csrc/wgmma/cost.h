// The predicted time of a wgmma kernel, in microseconds.
#pragma once
#include "core/choice.h"
#include "problem/gemm.h"

namespace mixed_gemm {

double predict_wgmma_us(const Choice& choice, const GemmProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
