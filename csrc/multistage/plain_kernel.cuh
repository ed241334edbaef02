// The multistage mainloop in CUTLASS's own kernel, for problems whose K nobody splits. Our kernel
// (kernel.cuh) has the code of every split beside the loop, which costs the largest tile its last
// registers and a spill.
#pragma once
#include "cutlass/gemm/kernel/gemm_universal_with_visitor.h"
#include "cutlass/gemm/threadblock/threadblock_swizzle.h"
#include "epilogue/fragment_visitors.cuh"
#include "grid/threadblock_mma.cuh"
#include "mainloop/multistage_mainloop.cuh"

namespace mixed_gemm {

template <typename Config>
struct PlainGemm {
  using Element = typename Config::Element;
  using Mma = ThreadblockMma<Config, MultistageMainloop<Config>, Element, cutlass::int4b_t, kTileK,
                             WarpMmaTraits<Config, kTileK>>;

  // d = sum + bias, or fma(sum, channel scale, bias).
  static constexpr bool kScales = Config::kMode == ScaleMode::kPerChannel;
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
  using Sums = evt::VisitorAccFetch;
  using Columns = VisitorColumns<Config, Element>;
  using Store = VisitorQuadStore<Config, Element>;
  using Scaled =
      evt::Sm80EVT<evt::VisitorCompute<cutlass::homogeneous_multiply_add, float, float, kRound>,
                   Sums, Columns, Columns>;
  using Added =
      evt::Sm80EVT<evt::VisitorCompute<cutlass::plus, float, float, kRound>, Sums, Columns>;
  using Tree = evt::Sm80EVT<Store, std::conditional_t<kScales, Scaled, Added>>;

  using Kernel = cutlass::gemm::kernel::GemmWithEpilogueVisitor<
      Mma, FragmentEpilogue<Config, Mma, Tree>,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>>;
  using Params = typename Kernel::Params;

  // -0 where there is no bias: a sum of -0 stays what it is.
  static typename Tree::Arguments tree_arguments(const GemmProblem& p) {
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const ColumnArguments<Element> bias{static_cast<const Element*>(p.bias), Element(-0.f), n};
    const StoreArguments<Element> store{static_cast<Element*>(p.d), m, n};
    if constexpr (kScales) {
      const ColumnArguments<Element> scales{static_cast<const Element*>(p.scales), Element(1.f), n};
      return {{{}, scales, bias, {}}, store};
    } else {
      return {{{}, bias, {}}, store};
    }
  }

  static Params params(const GemmProblem& p, const KernelExtents& e,
                       const typename Mma::MainloopParams& mainloop) {
    constexpr int kAnySms = 1, kAnyOccupancy = 1;  // stream-K's, which nobody asks for
    Params params(
        typename Kernel::Arguments(cutlass::gemm::GemmUniversalMode::kGemm, {e.m, e.n, e.k}, 1,
                                   tree_arguments(p), nullptr, nullptr, nullptr, nullptr, 0, 0, 0,
                                   0, int64_t{e.k}, int64_t{e.k}, int64_t{e.n}, int64_t{e.n}),
        kAnySms, kAnyOccupancy);
    params.params_B.mainloop = mainloop;
    return params;
  }
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kTile.min_blocks)
    plain_gemm_kernel(const __grid_constant__ typename PlainGemm<Config>::Params params) {
  using Kernel = typename PlainGemm<Config>::Kernel;
  extern __shared__ __align__(128) uint8_t shared_bytes[];
  Kernel::invoke(params, *reinterpret_cast<typename Kernel::SharedStorage*>(shared_bytes));
}

}  // namespace mixed_gemm
