// What dispatch/ hands to a launcher of a convolution: plain data, no CUTLASS.
#pragma once
#include "grid/gemm_args.h"
#include "problem/conv.h"

namespace mixed_gemm {

// gemm.m: output pixels; gemm.k: taps * channels_per_tap; gemm.a: channels-last pixels that start
// on 16 bytes, whose `pixel_channels` are a multiple of 16 bytes; gemm.groups and group_size: of
// the channels of one tap; gemm.d: channels-last. a_stride is not used.
struct ConvArgs {
  GemmArgs gemm;
  ConvShape shape;
  int pixel_channels = 0;
  int channels_per_tap = 0;
};
using ConvLaunch = int (*)(const ConvArgs&);  // returns a cudaError_t

}  // namespace mixed_gemm
