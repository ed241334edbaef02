// The multistage mainloop in CUTLASS's own kernel, for problems whose K nobody splits. Our kernel
// (kernel.cuh) has the code of every split beside the loop, which costs the largest tile its last
// registers and a spill.
//
// There is no activation: as a node of the tree its code would stand at each of a thread's outputs,
// 2600 to 15900 instructions a kernel in place of 800 to 2060 (int4, sm_80). Our kernel has one
// copy of it (epilogue/activate_all.cuh), so problems with an activation run there.
#pragma once
#include "epilogue/fragment_epilogue.cuh"
#include "epilogue/fragment_visitors.cuh"
#include "grid/plain_gemm.cuh"
#include "grid/threadblock_mma.cuh"
#include "mainloop/multistage_mainloop.cuh"

namespace mixed_gemm {

template <typename Config>
struct PlainGemm {
  using Element = typename Config::Element;
  using Mma = ThreadblockMma<Config, MultistageMainloop<Config>, kTileK>;

  // d = sum + bias, or fma(sum, channel scale, bias).
  static constexpr bool kScales = !is_scaled(Config::kScales);
  static constexpr auto kRound = cutlass::FloatRoundStyle::round_to_nearest;
  using Sums = evt::VisitorAccFetch;
  using Factor = typename Config::Factor;
  using Biases = VisitorColumns<Config, Element>;
  using Factors = VisitorColumns<Config, Factor>;
  using Store = VisitorQuadStore<Config, Element>;
  using Scaled =
      evt::Sm80EVT<evt::VisitorCompute<cutlass::homogeneous_multiply_add, float, float, kRound>,
                   Sums, Factors, Biases>;
  using Added =
      evt::Sm80EVT<evt::VisitorCompute<cutlass::plus, float, float, kRound>, Sums, Biases>;
  using Tree = evt::Sm80EVT<Store, std::conditional_t<kScales, Scaled, Added>>;

  using Kernel = PlainKernel<Mma, FragmentEpilogue<Config, Mma, Tree>>;
  using Params = typename Kernel::Params;

  // -0 where there is no bias: a sum of -0 stays what it is.
  static typename Tree::Arguments tree_arguments(const GemmProblem& p) {
    const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
    const ColumnArguments<Element> bias{static_cast<const Element*>(p.bias), Element(-0.f), n};
    const StoreArguments<Element> store{static_cast<Element*>(p.d), m, n};
    if constexpr (kScales) {
      const ColumnArguments<Factor> scales{column_factor<Config>(p), Factor(1.f), n};
      return {{{}, scales, bias, {}}, store};
    } else {
      return {{{}, bias, {}}, store};
    }
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
