// The int8 convolution: its launchers, templates end here.
#include <utility>

#include "conv_int8/config.cuh"
#include "conv_int8/kernel.cuh"
#include "conv_int8/launchers.h"
#include "grid/launch.cuh"

namespace mixed_gemm {
namespace {

template <typename Config>
typename ConvInt8Gemm<Config>::Params params_of(const ConvInt8Problem& p,
                                                const Requantization* channels, const Work& work) {
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  const ConvShape& s = p.shape;
  const int tap_channels = static_cast<int>(p.input_strides.w);
  const int n = static_cast<int>(s.out_c), m = static_cast<int>(s.rows());
  const int k = static_cast<int>(s.taps() * tap_channels);
  return {{ConvInt8Copy<Config>::params(s, p.input, tap_channels, tap_channels,
                                        static_cast<int8_t>(p.input_zero_point)),
           CopyB::params(p.weight, k, n, k)},
          {channels, p.d, m, n, static_cast<float>(p.clamp_min), static_cast<float>(p.clamp_max)},
          WorkSplit::make(work.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                          static_cast<int>(ceil_div(n, Config::kTile.n)),
                          static_cast<int>(ceil_div(k, kScaledTileK)), work.parts()),
          work.sums(),
          work.flags};
}

template <typename Config>
int launch_conv_int8(const ConvInt8Problem& p, const Requantization* channels, const Work& work) {
  constexpr int kSmemBytes = sizeof(typename ConvInt8Gemm<Config>::SharedStorage);
  static_assert(kSmemBytes == conv_int8_smem_bytes(Config::kTile),
                "why_not filters by conv_int8_smem_bytes()");
  const auto params = params_of<Config>(p, channels, work);
  const KernelLaunch shape = launch_of(work, params.work.workers, Config::kThreads, kSmemBytes);
  return launch_kernel(conv_int8_kernel<Config>, shape, params);
}

template <int... kRows>
constexpr ConvInt8Launchers launchers(std::integer_sequence<int, kRows...>) {
  return {launch_conv_int8<ConvInt8Config<kRows>>...};
}

}  // namespace

const ConvInt8Launchers& conv_int8_launchers() {
  static constexpr auto kTable =
      launchers(std::make_integer_sequence<int, kNumConvInt8TileConfigs>());
  return kTable;
}

int launch_requantization(const ConvInt8Problem& p, Requantization* out, void* stream) {
  constexpr int kThreads = 128;
  const int64_t channels = p.shape.out_c;
  const RequantizationParams params{p.weight,
                                    channels,
                                    p.shape.taps() * p.shape.in_c,
                                    p.weight_scale,
                                    p.weight_scale_stride,
                                    p.bias,
                                    p.weight_sums,
                                    p.input_scale,
                                    p.output_scale,
                                    p.input_zero_point,
                                    p.output_zero_point,
                                    out};
  const auto blocks =
      static_cast<unsigned>(ceil_div(channels * requantization_lanes(params), kThreads));
  requantization_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(params);
  return cudaGetLastError();
}

}  // namespace mixed_gemm
