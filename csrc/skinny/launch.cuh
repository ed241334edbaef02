// Templates of the skinny family end here.
#pragma once
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "grid/pdl_places.h"
#include "skinny/kernel.cuh"
#include "skinny/launchers.h"

namespace mixed_gemm {

// Whether the kernel was compiled for the scales of a problem.
template <typename Config>
bool skinny_scales_fit(const GemmProblem& p) {
  return scales_fit(p, Config::kZeros, Config::kScaled ? Config::kGroupStepK : 0);
}

// slices: blocks that share out K.
template <typename Config>
typename SkinnyGemm<Config>::Params skinny_params(const GemmProblem& p, int slices) {
  const KernelExtents e = kernel_extents(p);
  using Element = typename Config::Element;
  typename SkinnyGemm<Config>::Params params;
  using Values = CodeValues<typename Config::Weight>;
  static_cast<Values&>(params) =
      code_values<typename Config::Format, typename Config::Weight>(p.scheme.weight);
  params.a = static_cast<const Element*>(p.a);
  params.a_stride = e.a_stride;
  params.b = p.b_packed;
  params.scales = {
      static_cast<const Element*>(p.scales),
      static_cast<const Element*>(p.zeros),
      static_cast<int>(p.scale_stride),
      e.n,
      e.groups,
      cutlass::FastDivmod(static_cast<int>(ceil_div(e.group_size, Config::kGroupStepK)))};
  params.m = e.m;
  params.n = e.n;
  params.k = e.k;
  params.k_tiles = static_cast<int>(ceil_div(e.k, kTileK));
  params.octet_stride =
      8 / WeightLayout<typename Config::Weight>::kInterleave * params.k_tiles * kLineBytes;
  params.share =
      static_cast<int>(ceil_div(ceil_div(e.k, Config::kIterationK), static_cast<int64_t>(slices)));
  params.zero_mode = p.scheme.scales.zeros;
  params.output = {column_factor<Config>(p), static_cast<const Element*>(p.bias),
                   static_cast<Element*>(p.d), e.n, p.activation};
  return params;
}

// blocks_of_rows: thread blocks along y.
template <typename Config>
KernelLaunch skinny_shape(int64_t n, int64_t blocks_of_rows, const Work& work) {
  KernelLaunch shape;
  shape.grid = dim3(static_cast<unsigned>(ceil_div(n, Config::kN)),
                    static_cast<unsigned>(blocks_of_rows), static_cast<unsigned>(work.slices));
  shape.cluster.z = shape.grid.z;
  shape.threads = Config::kThreads;
  shape.stream = work.stream;
  shape.smem_bytes = SkinnyGemm<Config>::kDynamicBytes;
  shape.uses_pdl = uses_pdl(work.pdl.sms, int64_t{shape.grid.x} * shape.grid.y * work.slices,
                            Config::kMinBlocks);
  return shape;
}

template <typename Config>
int launch_skinny(const GemmProblem& p, const Work& work) {
  if (!skinny_scales_fit<Config>(p)) return cudaErrorInvalidValue;
  return launch_kernel(skinny_gemm_kernel<Config>,
                       skinny_shape<Config>(p.n, ceil_div(p.m, Config::kM), work),
                       skinny_params<Config>(p, work.slices));
}

template <typename Element, typename Weight, int kMode, int kRow>
constexpr GemmLaunch skinny_launcher() {
  if constexpr (is_skinny_compiled(kSkinnyConfigs[kRow], Weight::kType, kMode)) {
    return launch_skinny<SkinnyGemmConfig<Element, Weight, kMode, kRow>>;
  }
  return nullptr;
}

template <typename Element, typename Weight, int kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumSkinnyConfigs> skinny_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {skinny_launcher<Element, Weight, kMode, kRows>()...};
}

}  // namespace mixed_gemm
