// Device entries of the int8 convolution: the scaled GEMM's mainloop on pixels, and the constants
// of its output channels.
#pragma once
#include "conv_int8/requantized_output.cuh"
#include "grid/tile_gemm.cuh"
#include "mainloop/direct_mainloop.cuh"
#include "mainloop/dynamic_shared.cuh"
#include "mainloop/pixel_operand.cuh"

namespace mixed_gemm {

template <typename Config>
using ConvInt8Copy = PixelCopy<Config::kTile.m, Config::kThreads, 1, /*kPadded=*/true>;

template <typename Config>
using ConvInt8Gemm =
    TileGemm<Config, DirectMainloop<Config, ConvInt8Copy<Config>>, RequantizedOutput>;

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    conv_int8_kernel(const __grid_constant__ typename ConvInt8Gemm<Config>::Params params) {
  run_in_dynamic_shared<ConvInt8Gemm<Config>>(params);
}

struct RequantizationParams {
  const int8_t* weight = nullptr;  // [channels, k], contiguous
  int64_t channels = 0, k = 0;
  const float* weight_scale = nullptr;
  int64_t weight_scale_stride = 0;
  const float* bias = nullptr;           // or null
  const int32_t* weight_sums = nullptr;  // [channels], or null
  double input_scale = 1, output_scale = 1;
  int32_t input_zero_point = 0, output_zero_point = 0;
  Requantization* out = nullptr;  // [channels]
};

// Threads that take an output channel: a warp that sums its weights, or one where their sum is
// given.
inline __host__ __device__ int requantization_lanes(const RequantizationParams& p) {
  return p.weight_sums == nullptr ? 32 : 1;
}

// The sum of a channel's weights, by all lanes of a warp and for all of them.
__device__ inline int sum_of_channel(const RequantizationParams& p, int64_t channel) {
  const int8_t* weight = p.weight + channel * p.k;
  int sum = 0;
  for (int64_t k = threadIdx.x % 32; k < p.k; k += 32) sum += weight[k];
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  return sum;
}

__global__ inline void requantization_kernel(const RequantizationParams p) {
  const int lanes = requantization_lanes(p);
  const int64_t channel = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / lanes;
  if (channel >= p.channels) return;
  const int sum = p.weight_sums == nullptr ? sum_of_channel(p, channel) : p.weight_sums[channel];
  if (threadIdx.x % lanes != 0) return;
  const double scale = p.weight_scale[channel * p.weight_scale_stride];
  const double bias = p.bias == nullptr ? 0. : p.bias[channel];
  p.out[channel] = {p.input_zero_point * sum,
                    __double2float_rn(p.input_scale * scale / p.output_scale),
                    __double2float_rn(bias / p.output_scale + p.output_zero_point)};
}

}  // namespace mixed_gemm
