// The kernels of the int8 convolution as plain functions. All return a cudaError_t.
#pragma once
#include <array>

#include "conv_int8/config.h"
#include "conv_int8/requantization.h"
#include "grid/work.h"
#include "problem/conv.h"

namespace mixed_gemm {

// problem: as ConvInt8::run() takes it; rows of its weight start on 16 bytes and have as many
// channels a tap as a pixel has, zeros where the image has none. channels: of the output. split:
// not kParallel.
using ConvInt8Launch = int (*)(const ConvInt8Problem& problem, const Requantization* channels,
                               const Work& work);
using ConvInt8Launchers = std::array<ConvInt8Launch, kNumConvInt8TileConfigs>;

// The launcher of each row of kConvInt8TileConfigs.
const ConvInt8Launchers& conv_int8_launchers();
// out: [out_c]. The weight as the user gave it, which is read only where its sums are not given.
int launch_requantization(const ConvInt8Problem& problem, Requantization* out, void* stream);

}  // namespace mixed_gemm
