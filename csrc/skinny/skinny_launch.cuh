// Templates of the skinny family end here.
#pragma once
#include <array>
#include <limits>
#include <utility>

#include "skinny/skinny_kernel.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_skinny(const GemmArgs& args) {
  using Element = typename Config::Element;
  const auto* scales = static_cast<const Element*>(args.scales);
  const int unit = Config::kFine ? kMmaK : Config::kIterationK;
  typename SkinnyGemm<Config>::Params params;
  params.a = static_cast<const Element*>(args.a);
  params.a_stride = args.a_stride;
  params.b = args.b_packed;
  params.scales = scales;
  params.zeros = static_cast<const Element*>(args.zeros);
  if (args.scale_stride > std::numeric_limits<int>::max()) return cudaErrorInvalidValue;
  params.scale_stride = static_cast<int>(args.scale_stride);
  params.m = args.m;
  params.n = args.n;
  params.k = args.k;
  params.k_tiles = static_cast<int>(ceil_div(args.k, kTileK));
  params.octet_stride = 8 / WeightLayout<Config::kBits>::kInterleave * params.k_tiles *
                        WeightLayout<Config::kBits>::kLineBytes;
  params.groups = args.groups;
  params.units_per_group = cutlass::FastDivmod(static_cast<int>(ceil_div(args.group_size, unit)));
  params.zero_mode = args.zero_mode;
  params.output = {Config::kScaled ? nullptr : scales, static_cast<const Element*>(args.bias),
                   static_cast<Element*>(args.d), args.n, args.activation};
  const dim3 grid(static_cast<unsigned>(ceil_div(args.n, Config::kN)),
                  static_cast<unsigned>(ceil_div(args.m, Config::kM)));
  skinny_gemm_kernel<Config>
      <<<grid, Config::kThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(params);
  return cudaGetLastError();
}

template <typename Element, int kBits, ScaleMode kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumSkinnyConfigs> skinny_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_skinny<SkinnyGemmConfig<Element, kBits, kMode, kRows>>...};
}

}  // namespace mixed_gemm
