// The int8 convolution: its launchers, templates end here.
#include <utility>

#include "conv_int8/config.cuh"
#include "conv_int8/kernel.cuh"
#include "conv_int8/launchers.h"
#include "grid/launch.cuh"

namespace mixed_gemm {
namespace {

template <typename Config>
typename ConvInt8Gemm<Config>::Params params_of(const ConvInt8Args& args) {
  using CopyB = RowCopy<Config::kTile.n, Config::kThreads>;
  const ConvShape& s = args.shape;
  const int n = static_cast<int>(s.out_c), m = static_cast<int>(s.rows());
  const int k = static_cast<int>(s.taps() * args.tap_channels);
  return {{ConvInt8Copy<Config>::params(s, args.pixels, args.pixel_channels, args.tap_channels,
                                        args.padding),
           CopyB::params(args.weight, k, n, k)},
          {args.channels, args.d, m, n, static_cast<float>(args.clamp_min),
           static_cast<float>(args.clamp_max)},
          WorkSplit::make(args.split, static_cast<int>(ceil_div(m, Config::kTile.m)),
                          static_cast<int>(ceil_div(n, Config::kTile.n)),
                          static_cast<int>(ceil_div(k, kScaledTileK)), args.slices),
          static_cast<float*>(args.partials),
          args.flags};
}

template <typename Config>
int launch_conv_int8(const ConvInt8Args& args) {
  constexpr int kSmemBytes = sizeof(typename ConvInt8Gemm<Config>::SharedStorage);
  static_assert(kSmemBytes == conv_int8_smem_bytes(Config::kTile),
                "why_not filters by conv_int8_smem_bytes()");
  const auto params = params_of<Config>(args);
  const auto cluster =
      static_cast<unsigned>(args.split == SplitK::kCluster ? params.work.slices : 1);
  return launch_kernel(
      conv_int8_kernel<Config>,
      {dim3(params.work.workers), Config::kThreads, args.stream, kSmemBytes, dim3(cluster)},
      params);
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

int launch_requantization(const RequantizationArgs& args) {
  constexpr int kThreads = 128;
  const auto blocks = static_cast<unsigned>(ceil_div(args.channels, kThreads / 32));
  requantization_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(args);
  return cudaGetLastError();
}

}  // namespace mixed_gemm
