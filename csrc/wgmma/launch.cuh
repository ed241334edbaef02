// Templates of the wgmma family end here.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "hopper/specialized_gemm.cuh"
#include "hopper/tensor_map.h"
#include "wgmma/mainloop.cuh"
#include "wgmma/output.cuh"

namespace mixed_gemm {

template <typename Config>
using WgmmaGemm = SpecializedGemm<Config, WgmmaMainloop<Config>, WgmmaOutput<Config>>;

template <typename Config>
int make_copies(const GemmArgs& a, typename WgmmaMainloop<Config>::Copies& copies) {
  using Layout = typename Config::Layout;
  const int64_t k_tiles = ceil_div(a.k, kTileK), line_bytes = k_tiles * Layout::kLineBytes;
  using Converter = FoldingConverter<typename Config::Format, Config::kBits>;
  copies.staged = StagedScales(a.group_size, a.k, ZeroFolding::of<Converter>(a.zero_mode));
  const BoxedMatrix tokens{a.a, 2, a.k, a.m, a.a_stride * 2, kTileK, Config::kTile.m, true};
  const BoxedMatrix weights{a.b_packed,
                            1,
                            line_bytes,
                            round_up(a.n, kPadN) / Layout::kInterleave,
                            line_bytes,
                            Layout::kLineBytes,
                            Config::kTile.n / Layout::kInterleave,
                            true};
  const BoxedMatrix scales{
      a.scales, 2, a.n, a.groups, a.scale_stride * 2, Config::kTile.n, copies.staged.rows.of_copy,
      false};
  copies.missed_zeros = MissedZeros(a);
  BoxedMatrix zeros = scales;
  zeros.data = a.zeros;
  int error = make_tensor_map(tokens, copies.tokens);
  if (error == 0) error = make_tensor_map(weights, copies.weights);
  if (error == 0 && Config::kScaled) error = make_tensor_map(scales, copies.scales);
  if (error == 0 && Config::kZeros) error = make_tensor_map(zeros, copies.zeros);
  return error;
}

template <typename Config>
int launch_wgmma(const GemmArgs& args) {
  using Kernel = WgmmaGemm<Config>;
  using Element = typename Config::Element;
  constexpr int kSmemBytes = sizeof(typename Kernel::SharedStorage);
  static_assert(kSmemBytes <= wgmma_smem_bytes(Config::kTile, Config::kBits, Config::kMode),
                "why_not filters by wgmma_smem_bytes()");
  typename Kernel::Params params;
  constexpr int kLeastK = Config::kScaled ? kTileK / Config::kScaleRows : 0;  // of a row of scales
  if (!scales_fit(args, Config::kZeros, kLeastK)) return cudaErrorInvalidValue;
  const int error = make_copies<Config>(args, params.copies);
  if (error != 0) return error;
  // What would be copied behind them overwrites weights, or the barriers of the last stage.
  if (Config::kScaled && params.copies.staged.rows.of_tile > Config::kScaleRows) {
    return cudaErrorInvalidValue;
  }
  params.output.p.output = {Config::kScaled ? nullptr : static_cast<const Element*>(args.scales),
                            static_cast<const Element*>(args.bias), static_cast<Element*>(args.d),
                            args.n, args.activation};
  params.output.p.m = args.m;
  params.output.p.partial_stride = round_up(args.n, kOutputsPerAccess);
  params.work =
      WorkSplit::make(args.split, static_cast<int>(ceil_div(args.m, Config::kTile.m)),
                      static_cast<int>(ceil_div(args.n, Config::kTile.n)),
                      static_cast<int>(ceil_div(args.k, unit_k(Config::kTile))), args.slices);
  params.output.p.partials = params.slots = args.partials;
  params.flags = args.flags;
  params.blocks = std::min(args.resident, params.work.workers);
  return launch_kernel(specialized_gemm_kernel<Kernel, Config>,
                       {dim3(params.blocks), Config::kThreads, args.stream, kSmemBytes, dim3(1),
                        false, args.early_start},
                       params);
}

template <typename Element, int kBits, WgmmaMode kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumWgmmaTileConfigs> wgmma_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_wgmma<WgmmaConfig<Element, kBits, kMode, kRows>>...};
}

}  // namespace mixed_gemm
