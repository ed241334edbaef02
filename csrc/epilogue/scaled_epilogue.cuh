// The epilogues of the scaled GEMMs as trees of small types, evaluated on one sum:
//
//   ScaledEpilogue             a_s[m] * (b_s[n] * sum)
//   ScaledEpilogueBias         a_s[m] * (b_s[n] * sum) + bias[n]
//   ScaledEpilogueAzp          a_s[m] * (b_s[n] * (sum - azp_adj[n])) + bias[n]
//   ScaledEpilogueAzpPerToken  a_s[m] * (b_s[n] * (sum - azp[m] * azp_adj[n])) + bias[n]
//   BlocksEpilogueBias         sum + bias[n]: scales of blocks are in the sum
//
// A node is made from ScaledEpilogueArgs. row() and column() fetch its values of a row and of a
// column of the output, once for many sums; operator() puts them together.
#pragma once
#include <type_traits>

#include "core/quant_scheme.h"
#include "cutlass/bfloat16.h"
#include "cutlass/half.h"
#include "epilogue/scaled_epilogue_args.h"

namespace mixed_gemm {

// ---- leaves: the sum, less its zero point, in fp32
// -----------------------------------------------
struct Sum {
  struct Row {};
  struct Column {};

  __device__ explicit Sum(const ScaledEpilogueArgs&) {}
  __device__ Row row(int) const { return {}; }
  __device__ Column column(int) const { return {}; }
  template <typename T>
  __device__ float operator()(T sum, Row, Column) const {
    return static_cast<float>(sum);
  }
};

// Difference: int64_t is exact whatever azp is; int32_t takes a quarter of the time to convert,
// where the caller knows that it suffices.
template <typename Difference>
struct SumMinusAzp {
  struct Row {};
  using Column = int32_t;
  const int32_t* azp_adj;

  __device__ explicit SumMinusAzp(const ScaledEpilogueArgs& args) : azp_adj(args.azp_adj) {}
  __device__ Row row(int) const { return {}; }
  __device__ Column column(int n) const { return azp_adj[n]; }
  __device__ float operator()(int32_t sum, Row, Column adj) const {
    return static_cast<float>(static_cast<Difference>(sum) - adj);
  }
};

template <typename Difference>
struct SumMinusAzpPerToken {
  using Row = int32_t;
  using Column = int32_t;
  const int32_t *azp, *azp_adj;

  __device__ explicit SumMinusAzpPerToken(const ScaledEpilogueArgs& args)
      : azp(args.azp), azp_adj(args.azp_adj) {}
  __device__ Row row(int m) const { return azp[m]; }
  __device__ Column column(int n) const { return azp_adj[n]; }
  __device__ float operator()(int32_t sum, Row azp_m, Column adj) const {
    return static_cast<float>(sum - static_cast<Difference>(azp_m) * adj);
  }
};

// ---- inner nodes
// ---------------------------------------------------------------------------------
template <typename Child>
struct ScaleColumns {
  using Row = typename Child::Row;
  struct Column {
    typename Child::Column child;
    float scale;
  };
  Child child;
  ScaleVector scale;

  __device__ explicit ScaleColumns(const ScaledEpilogueArgs& args)
      : child(args), scale(args.scale_b) {}
  __device__ Row row(int m) const { return child.row(m); }
  __device__ Column column(int n) const {
    return {child.column(n), scale.values[n * scale.stride]};
  }
  template <typename T>
  __device__ float operator()(T sum, const Row& row, const Column& column) const {
    return column.scale * child(sum, row, column.child);
  }
};

template <typename Child>
struct ScaleRows {
  struct Row {
    typename Child::Row child;
    float scale;
  };
  using Column = typename Child::Column;
  Child child;
  ScaleVector scale;

  __device__ explicit ScaleRows(const ScaledEpilogueArgs& args)
      : child(args), scale(args.scale_a) {}
  __device__ Row row(int m) const { return {child.row(m), scale.values[m * scale.stride]}; }
  __device__ Column column(int n) const { return child.column(n); }
  template <typename T>
  __device__ float operator()(T sum, const Row& row, const Column& column) const {
    return row.scale * child(sum, row.child, column);
  }
};

// A bias of any float type, or zeros where there is none. Loading and converting are apart and free
// of branches, so that the loads of many columns can run together.
struct BiasVector {
  const void* values;
  ElementType type;

  __device__ uint32_t bits(int n) const {
    if (values == nullptr) return 0;
    return type == ElementType::kFloat32 ? static_cast<const uint32_t*>(values)[n]
                                         : static_cast<const uint16_t*>(values)[n];
  }
  __device__ float value(uint32_t bits) const {
    if (type == ElementType::kFloat16) {
      return float(cutlass::half_t::bitcast(static_cast<uint16_t>(bits)));
    }
    return __uint_as_float(type == ElementType::kBFloat16 ? bits << 16 : bits);
  }
};

// Child is a ScaleRows: its last product and the bias are one fused multiply-add.
template <typename Child>
struct AddBias {
  using Row = typename Child::Row;
  struct Column {
    typename Child::Column child;
    uint32_t bias;  // its bits
  };
  Child scaled;
  BiasVector bias;

  __device__ explicit AddBias(const ScaledEpilogueArgs& args)
      : scaled(args), bias{args.bias, args.out_type} {}
  __device__ Row row(int m) const { return scaled.row(m); }
  __device__ Column column(int n) const { return {scaled.column(n), bias.bits(n)}; }
  template <typename T>
  __device__ float operator()(T sum, const Row& row, const Column& column) const {
    return fmaf(row.scale, scaled.child(sum, row.child, column.child), bias.value(column.bias));
  }
};

struct BlocksEpilogueBias {
  using Row = Sum::Row;
  using Column = uint32_t;  // bits of the bias
  BiasVector bias;

  __device__ explicit BlocksEpilogueBias(const ScaledEpilogueArgs& args)
      : bias{args.bias, args.out_type} {}
  __device__ Row row(int) const { return {}; }
  __device__ Column column(int n) const { return bias.bits(n); }
  __device__ float operator()(float sum, Row, Column bits) const { return sum + bias.value(bits); }
};

using ScaledEpilogue = ScaleRows<ScaleColumns<Sum>>;
using ScaledEpilogueBias = AddBias<ScaledEpilogue>;
template <typename Difference>
using ScaledEpilogueAzp = AddBias<ScaleRows<ScaleColumns<SumMinusAzp<Difference>>>>;
template <typename Difference>
using ScaledEpilogueAzpPerToken = AddBias<ScaleRows<ScaleColumns<SumMinusAzpPerToken<Difference>>>>;

// The last two trees with nothing to add.
template <typename Difference>
using ScaledEpilogueAzpOnly = ScaleRows<ScaleColumns<SumMinusAzp<Difference>>>;
template <typename Difference>
using ScaledEpilogueAzpPerTokenOnly = ScaleRows<ScaleColumns<SumMinusAzpPerToken<Difference>>>;

// Calls f(tree) with the tree that args.kind names; fp8 has no zero points. A branch at the end of
// a tile rather than a kernel per tree: the registers are the same, compiling takes a third.
// narrow: int32 holds the differences with zero points.
template <typename SumType, typename F>
__device__ void with_epilogue(const ScaledEpilogueArgs& args, F f, bool narrow = false) {
  if constexpr (std::is_same_v<SumType, int32_t>) {
    if (args.kind == EpilogueKind::kAzp) {
      if (!narrow) return f(ScaledEpilogueAzp<int64_t>(args));
      return args.bias ? f(ScaledEpilogueAzp<int32_t>(args))
                       : f(ScaledEpilogueAzpOnly<int32_t>(args));
    }
    if (args.kind == EpilogueKind::kAzpPerToken) {
      if (!narrow) return f(ScaledEpilogueAzpPerToken<int64_t>(args));
      return args.bias ? f(ScaledEpilogueAzpPerToken<int32_t>(args))
                       : f(ScaledEpilogueAzpPerTokenOnly<int32_t>(args));
    }
  }
  if (args.kind == EpilogueKind::kBias) return f(ScaledEpilogueBias(args));
  f(ScaledEpilogue(args));
}

// Does the same for sums that scales of blocks are in.
template <typename F>
__device__ void with_blocks_epilogue(const ScaledEpilogueArgs& args, F f) {
  if (args.bias != nullptr) return f(BlocksEpilogueBias(args));
  f(Sum(args));
}

}  // namespace mixed_gemm
