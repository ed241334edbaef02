// The kernels of the int8 convolution as plain functions. All return a cudaError_t.
#pragma once
#include <array>

#include "conv_int8/args.h"
#include "conv_int8/config.h"

namespace mixed_gemm {

using ConvInt8Launchers = std::array<ConvInt8Launch, kNumConvInt8TileConfigs>;

// The launcher of each row of kConvInt8TileConfigs.
const ConvInt8Launchers& conv_int8_launchers();
int launch_requantization(const RequantizationArgs& args);

}  // namespace mixed_gemm
