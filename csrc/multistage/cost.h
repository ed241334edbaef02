// The predicted time of a multistage kernel, in microseconds.
#pragma once
#include "core/choice.h"
#include "problem/gemm.h"

namespace mixed_gemm {

double predict_multistage_us(const Choice& choice, const GemmProblem& problem,
                             const DeviceInfo& device);

}  // namespace mixed_gemm
