// The epilogues of the scaled GEMMs as visitor trees of CUTLASS. Each computes what the tree of the
// same name in scaled_epilogue.cuh does for one sum, bit by bit:
//
//   scaled          a_s[m] * (b_s[n] * sum) + bias[n]
//   azp             a_s[m] * (b_s[n] * (sum - azp_adj[n])) + bias[n]
//   azp per token   a_s[m] * (b_s[n] * (sum - azp[m] * azp_adj[n])) + bias[n]
#pragma once
#include "epilogue/float_matrix.cuh"
#include "epilogue/scaled_visitors.cuh"

namespace mixed_gemm {

template <typename Config>
struct ScaledNodes {
  template <template <typename> class Function, typename Result, typename Operands>
  using Compute =
      evt::VisitorCompute<Function, Result, Operands, cutlass::FloatRoundStyle::round_to_nearest>;

  using ScaleA = VisitorRows<Config, float>;
  using ScaleB = VisitorOctets<Config, StridedValues<float>>;
  using Bias = VisitorOctets<Config, BiasValues>;
  using Azp = VisitorRows<Config, int32_t>;
  using AzpAdj = VisitorOctets<Config, StridedValues<int32_t>>;
  using Sums = evt::VisitorAccFetch;

  // In 64 bits it is exact, whatever azp is.
  using AzpTimesAdj = evt::Sm80EVT<Compute<cutlass::multiplies, int64_t, int64_t>, Azp, AzpAdj>;
  template <typename Zero>
  using SumsMinus = evt::Sm80EVT<Compute<cutlass::minus, float, int64_t>, Sums, Zero>;

  template <typename Leaf>
  using ByColumns = evt::Sm80EVT<Compute<cutlass::multiplies, float, float>, ScaleB, Leaf>;
  template <typename Leaf>
  using Tree = evt::Sm80EVT<Compute<cutlass::homogeneous_multiply_add, float, float>, ScaleA,
                            ByColumns<Leaf>, Bias>;
};

// The trees of a kernel, of which its blocks choose one: a kernel for each would repeat the
// mainloop. Sum: the type of the accumulators; fp8 has no zero points.
template <typename Config, typename Sum>
struct ScaledTrees {
  using Nodes = ScaledNodes<Config>;
  using Scaled = typename Nodes::template Tree<typename Nodes::Sums>;
  using Azp =
      typename Nodes::template Tree<typename Nodes::template SumsMinus<typename Nodes::AzpAdj>>;
  using AzpPerToken = typename Nodes::template Tree<
      typename Nodes::template SumsMinus<typename Nodes::AzpTimesAdj>>;

  struct Arguments {
    EpilogueKind kind;
    typename Scaled::Arguments scaled;
    typename Azp::Arguments azp;
    typename AzpPerToken::Arguments azp_per_token;
    FloatMatrix out;
  };
  struct Params {
    EpilogueKind kind;
    typename Scaled::Params scaled;
    typename Azp::Params azp;
    typename AzpPerToken::Params azp_per_token;
    FloatMatrix out;
  };
  struct SharedStorage {};

  template <typename Shape>
  static Params to_underlying_arguments(const Shape& shape, const Arguments& a, void* none) {
    return {a.kind, Scaled::to_underlying_arguments(shape, a.scaled, none),
            Azp::to_underlying_arguments(shape, a.azp, none),
            AzpPerToken::to_underlying_arguments(shape, a.azp_per_token, none), a.out};
  }

  // Where there is no bias, `scaled` adds -0, which leaves every product what it is, and the others
  // add +0, as the trees of scaled_epilogue.cuh do, so that zeros get the same sign.
  static Arguments arguments(const ScaledEpilogueArgs& a, const FloatMatrix& out) {
    const int last_row = out.m - 1, last_column = out.n - 1;
    const uint32_t minus_zero = a.out_type == ElementType::kFloat32 ? 0x80000000u : 0x8000u;
    const RowArguments<float> scale_a{a.scale_a.values, a.scale_a.stride, last_row};
    const OctetArguments<StridedValues<float>> scale_b{{a.scale_b.values, a.scale_b.stride},
                                                       last_column};
    const OctetArguments<BiasValues> scaled_bias{{{a.bias, a.out_type}, minus_zero}, last_column};
    const OctetArguments<BiasValues> azp_bias{{{a.bias, a.out_type}, 0}, last_column};
    const RowArguments<int32_t> azp{a.azp, 1, last_row};
    const OctetArguments<StridedValues<int32_t>> azp_adj{{a.azp_adj, 1}, last_column};
    return {a.kind,
            {scale_a, {scale_b, {}, {}}, scaled_bias, {}},
            {scale_a, {scale_b, {{}, azp_adj, {}}, {}}, azp_bias, {}},
            {scale_a, {scale_b, {{}, {azp, azp_adj, {}}, {}}, {}}, azp_bias, {}},
            out};
  }

  // Calls f(tree) with the tree of the kind.
  template <typename F>
  static CUTLASS_DEVICE void choose(const Params& p, F f) {
    if constexpr (std::is_same_v<Sum, int32_t>) {
      if (p.kind == EpilogueKind::kAzp) return f(Azp(p.azp, {}));
      if (p.kind == EpilogueKind::kAzpPerToken) return f(AzpPerToken(p.azp_per_token, {}));
    }
    f(Scaled(p.scaled, {}));
  }
};

}  // namespace mixed_gemm
