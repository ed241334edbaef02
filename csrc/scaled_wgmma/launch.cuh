// Templates of the int8 wgmma kernels end here.
#pragma once
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "grid/launch.cuh"
#include "grid/scaled_mm_args.h"
#include "hopper/specialized_gemm.cuh"
#include "hopper/tensor_map.h"
#include "scaled_wgmma/mainloop.cuh"
#include "scaled_wgmma/output.cuh"

namespace mixed_gemm {

template <typename Config>
int launch_wgmma_int8(const ScaledMmArgs& args) {
  using Gemm = SpecializedGemm<Config, WgmmaInt8Mainloop<Config>, WgmmaScaledOutput<Config>>;
  constexpr int kSmemBytes = sizeof(typename Gemm::SharedStorage);
  static_assert(kSmemBytes <= wgmma_int8_smem_bytes(Config::kTile),
                "why_not filters by wgmma_int8_smem_bytes()");
  typename Gemm::Params params;
  const BoxedMatrix tokens{args.a,          1,   args.k, args.m, args.a_stride, kScaledTileK,
                           Config::kTile.m, true};
  const BoxedMatrix weights{args.b,          1,   args.k, args.n, args.b_stride, kScaledTileK,
                            Config::kTile.n, true};
  int error = make_tensor_map(tokens, params.copies.tokens);
  if (error == 0) error = make_tensor_map(weights, params.copies.weights);
  if (error != 0) return error;
  params.output.p = {
      args.epilogue,           args.d, args.m, args.n, static_cast<int32_t*>(args.partials),
      round_up(args.n, kOctet)};
  constexpr int64_t kLargestProduct = 128 * 128;
  params.output.room = std::numeric_limits<int32_t>::max() - kLargestProduct * args.k;
  params.work = WorkSplit::make(args.split, static_cast<int>(ceil_div(args.m, Config::kTile.m)),
                                static_cast<int>(ceil_div(args.n, Config::kTile.n)),
                                static_cast<int>(ceil_div(args.k, kScaledTileK)), args.slices);
  params.slots = static_cast<float*>(args.partials);
  params.flags = args.flags;
  params.blocks = std::min(args.resident, params.work.workers);
  return launch_kernel(specialized_gemm_kernel<Gemm, Config>,
                       {dim3(params.blocks), Config::kThreads, args.stream, kSmemBytes, dim3(1),
                        false, args.early_start},
                       params);
}

// One launcher per row of kWgmmaInt8TileConfigs.
template <int... kRows>
constexpr std::array<ScaledMmLaunch, kNumWgmmaInt8TileConfigs> wgmma_int8_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_wgmma_int8<WgmmaInt8Config<kRows>>...};
}

}  // namespace mixed_gemm
