// What the ways to run a convolution with quantized weights are predicted to take, in microseconds.
#pragma once
#include "core/device_info.h"
#include "dispatch/tile_name.h"
#include "problem/conv.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// gemm: gemm_of(problem). choice: a row of kConvTileConfigs.
double predict_implicit_us(const TileChoice& choice, const ConvProblem& problem,
                           const GemmProblem& gemm, const DeviceInfo& device);

// The library's convolution on the dequantized filter.
double predict_dense_conv_us(const ConvProblem& problem, const GemmProblem& gemm,
                             const DeviceInfo& device);

// gemm_us: of the GEMM that a pointwise convolution is.
double predict_pointwise_us(double gemm_us, const ConvProblem& problem, const DeviceInfo& device);

}  // namespace mixed_gemm
