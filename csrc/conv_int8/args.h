// What dispatch/ hands to the launchers of the int8 convolution: plain data, no CUTLASS.
#pragma once
#include "conv_int8/requantization.h"
#include "core/split.h"
#include "problem/conv.h"

namespace mixed_gemm {

struct RequantizationArgs {
  const int8_t* weight = nullptr;  // [channels, k], contiguous
  int64_t channels = 0, k = 0;
  const float* weight_scale = nullptr;
  int64_t weight_scale_stride = 0;
  const float* bias = nullptr;  // or null
  double input_scale = 1, output_scale = 1;
  int32_t input_zero_point = 0, output_zero_point = 0;
  Requantization* out = nullptr;  // [channels]
  void* stream = nullptr;
};

// pixels: channels-last int8 that start on 16 bytes. weight: [channels, taps * tap_channels], rows
// that start on 16 bytes, zeros where the pixels have no channel. split: none, stream-K or cluster.
struct ConvInt8Args {
  ConvShape shape;
  const void* pixels = nullptr;
  int pixel_channels = 0, tap_channels = 0;  // multiples of 16
  const void* weight = nullptr;
  int8_t padding = 0;
  const Requantization* channels = nullptr;
  int clamp_min = -128, clamp_max = 127;
  int8_t* d = nullptr;  // channels-last
  SplitK split = SplitK::kNone;
  int slices = 1;
  void* partials = nullptr;
  int* flags = nullptr;
  void* stream = nullptr;
};
using ConvInt8Launch = int (*)(const ConvInt8Args&);  // returns a cudaError_t

}  // namespace mixed_gemm
