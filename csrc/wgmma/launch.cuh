// Templates of the wgmma family end here.
#pragma once
#include <algorithm>
#include <array>
#include <utility>

#include "grid/launch.cuh"
#include "hopper/specialized_gemm.cuh"
#include "hopper/tensor_map.h"
#include "wgmma/launchers.h"
#include "wgmma/mainloop.cuh"
#include "wgmma/output.cuh"

namespace mixed_gemm {

template <typename Config, typename Schedule = WorkSplit>
using WgmmaGemm = SpecializedGemm<Config, WgmmaMainloop<Config>, WgmmaOutput<Config>, Schedule>;

// experts: whose weights and scales lie one behind the other.
template <typename Config>
int make_copies(const GemmProblem& p, int64_t experts,
                typename WgmmaMainloop<Config>::Copies& copies) {
  using Layout = typename Config::Layout;
  const KernelExtents e = kernel_extents(p);
  const int64_t k_tiles = ceil_div(e.k, kTileK), line_bytes = k_tiles * kLineBytes;
  const int64_t weight_rows = round_up(e.n, kPadN) / Layout::kInterleave;
  using Converter = typename Config::Converter;
  copies.staged =
      StagedScales(e.group_size, e.k, ZeroFolding::of<Converter>(p.scheme.scales.zeros));
  const BoxedMatrix tokens{p.a, 2, e.k, e.m, e.a_stride * 2, kTileK, Config::kTile.m, true};
  const BoxedMatrix weights{p.b_packed,
                            1,
                            line_bytes,
                            weight_rows * experts,
                            line_bytes,
                            kLineBytes,
                            Config::kTile.n / Layout::kInterleave,
                            true};
  constexpr int kScaleBytes = scale_bytes(Config::kScales.type);
  const BoxedMatrix scales{p.scales,
                           kScaleBytes,
                           e.n,
                           e.groups * experts,
                           p.scale_stride * kScaleBytes,
                           Config::kTile.n,
                           copies.staged.rows.of_copy,
                           false};
  if constexpr (Config::kGrouped) {
    copies.of_weights = static_cast<int>(weight_rows);
    copies.of_scales = e.groups;
  }
  copies.unfolded_zeros = UnfoldedZeros(p, e);
  using Values = CodeValues<typename Config::Weight>;
  static_cast<Values&>(copies) =
      code_values<typename Config::Format, typename Config::Weight>(p.scheme.weight);
  BoxedMatrix zeros = scales;
  zeros.data = p.zeros;
  int error = make_tensor_map(tokens, copies.tokens);
  if (error == 0) error = make_tensor_map(weights, copies.weights);
  if (error == 0 && Config::kScaled) error = make_tensor_map(scales, copies.scales);
  if (error == 0 && Config::kZeros) error = make_tensor_map(zeros, copies.zeros);
  return error;
}

// Fills in what the kernel reads, all but its work; returns a cudaError_t.
template <typename Config, typename Params>
int fill_params(const GemmProblem& p, int64_t experts, Params& params) {
  const KernelExtents e = kernel_extents(p);
  using Element = typename Config::Element;
  constexpr int kLeastK = Config::kScaled ? kTileK / Config::kScaleRows : 0;  // of a row of scales
  if (!scales_fit(p, Config::kZeros, kLeastK)) return cudaErrorInvalidValue;
  const int error = make_copies<Config>(p, experts, params.copies);
  if (error != 0) return error;
  // More rows would overwrite weights, or the barriers of the last stage.
  const int rows = params.copies.staged.rows.of_tile;
  const bool asks = Config::kScales.row_k == kAnyRow;
  if (Config::kScaled && (asks ? rows > Config::kScaleRows : rows != Config::kScaleRows)) {
    return cudaErrorInvalidValue;
  }
  params.output.p.output = {column_factor<Config>(p), static_cast<const Element*>(p.bias),
                            static_cast<Element*>(p.d), e.n, p.activation};
  params.output.p.m = e.m;
  params.output.p.partial_stride = round_up(e.n, kOutputsPerAccess);
  return cudaSuccess;
}

template <typename Config, typename Kernel>
constexpr int wgmma_kernel_bytes() {
  constexpr int kSmemBytes = sizeof(typename Kernel::SharedStorage);
  static_assert(
      kSmemBytes <= wgmma_smem_bytes(Config::kTile, Config::Weight::kType, Config::kScales),
      "why_not filters by wgmma_smem_bytes()");
  return kSmemBytes;
}

template <typename Config>
int launch_wgmma(const GemmProblem& p, const Work& work) {
  const KernelExtents e = kernel_extents(p);
  using Kernel = WgmmaGemm<Config>;
  typename Kernel::Params params;
  const int error = fill_params<Config>(p, /*experts=*/1, params);
  if (error != 0) return error;
  params.work =
      WorkSplit::make(work.split, static_cast<int>(ceil_div(e.m, Config::kTile.m)),
                      static_cast<int>(ceil_div(e.n, Config::kTile.n)),
                      static_cast<int>(ceil_div(e.k, work_step_k(Config::kTile))), work.parts());
  params.output.p.partials = params.slots = work.sums();
  params.flags = work.flags;
  params.blocks = std::min(work.resident, params.work.workers);
  KernelLaunch shape =
      launch_of(work, params.blocks, Config::kThreads, wgmma_kernel_bytes<Config, Kernel>());
  shape.even = work.pdl;
  return launch_kernel(specialized_gemm_kernel<Kernel, Config>, shape, params);
}

template <typename Element, typename Weight, int kMode, int... kRows>
constexpr std::array<GemmLaunch, kNumWgmmaTileConfigs> wgmma_row_launchers(
    std::integer_sequence<int, kRows...>) {
  return {launch_wgmma<WgmmaConfig<Element, Weight, kMode, kRows>>...};
}

}  // namespace mixed_gemm
