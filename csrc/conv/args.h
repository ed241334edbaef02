// What dispatch/ hands to a launcher of a convolution: plain data, no CUTLASS.
#pragma once
#include "conv_int8/requantization.h"
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
int launch_requantization(const RequantizationArgs& args);

// pixels: as in ConvArgs, int8. weight: [channels, taps * tap_channels], rows that start on 16
// bytes, zeros where the pixels have no channel. split: none, stream-K or cluster.
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

// One image tensor into another of any strides; channels from `channels` to `dst_channels` become
// 0. element_bytes: 1, 2 or 4.
struct CopyImagesArgs {
  int element_bytes = 2;
  int64_t images = 0, channels = 0, dst_channels = 0, h = 0, w = 0;
  const void* src = nullptr;
  ImageStrides src_strides;
  void* dst = nullptr;
  ImageStrides dst_strides;
  void* stream = nullptr;
};
int launch_copy_images(const CopyImagesArgs& args);

}  // namespace mixed_gemm
