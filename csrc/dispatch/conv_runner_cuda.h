// Runs an implicit-GEMM candidate of a convolution on the current device: brings scales into form,
// finds workspace, launches.
#pragma once
#include "dispatch/conv_select.h"
#include "dispatch/cuda_runner.h"

namespace mixed_gemm {

// Channels-last pixels whose channels are padded to whole 16 bytes, and which start on 16 bytes.
struct Pixels {
  const void* data = nullptr;
  int64_t channels = 0;
};

// d: channels-last, contiguous; problem.input and problem.d are not looked at.
Status run_conv(const ConvCandidate& candidate, const ConvProblem& problem, const Pixels& pixels,
                void* d, const Allocate& allocate, void* stream);
Status run_conv_int8(const ConvCandidate& candidate, const ConvInt8Problem& problem,
                     const Pixels& pixels, int8_t* d, const Allocate& allocate, void* stream);

}  // namespace mixed_gemm
