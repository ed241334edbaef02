// Leaves of the visitor trees of the scaled GEMMs (epilogue/scaled_trees.cuh): values of rows and
// of columns, one for all or one each, which is known at run time only. CUTLASS's
// VisitorRowBroadcast reads whole vectors, past the end of an odd n.
//
// Trees are shown a few octets of columns at a time, a step, and all rows of each
// (epilogue/scaled_fragment_epilogue.cuh): so a leaf keeps the values of one step's columns, and
// the values of all rows, which are few.
#pragma once
#include "epilogue/scaled_epilogue.cuh"
#include "epilogue/scaled_output.cuh"
#include "epilogue/visitor_base.cuh"

namespace mixed_gemm {

// Octets of columns in a step.
template <typename Config>
constexpr int kStepOctets = octets_ahead(Config::kMmaM, Config::kMmaN);

// Values behind the last row or column repeat the last one: such outputs are never stored.
template <typename Value>
struct RowArguments {
  const Value* values = nullptr;
  int stride = 0;  // 0: one value for all, 1: one each
  int last = 0;    // row
};

template <typename Config, typename Value>
struct VisitorRows : VisitorBase<RowArguments<Value>> {
  using VisitorBase<RowArguments<Value>>::VisitorBase;

  struct Callbacks : evt::detail::EmptyCallbacks {
    Value values[2 * Config::kMmaM];

    template <typename Sum, int kSize>
    CUTLASS_DEVICE cutlass::Array<Value, kSize> visit(int, int row, int, int,
                                                      const cutlass::Array<Sum, kSize>&) {
      cutlass::Array<Value, kSize> result;
      result.fill(values[row]);
      return result;
    }
  };

  template <typename Shape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread, const Shape&) {
    const RowArguments<Value>& p = *this->params;
    const int row0 = tile.m() * Config::kTile.m + Config::warp_row(thread) + thread % 32 / 4;
    Callbacks callbacks;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * Config::kMmaM; ++i) {
      const int row = min(row0 + 8 * i, p.last);
      callbacks.values[i] = p.values[row * p.stride];
    }
    return callbacks;
  }
};

// The source of a leaf of columns. The bits that load() returns become a value behind the loads of
// all columns of a step, so that these run together.
template <typename Value_>
struct StridedValues {
  using Value = Value_;
  using Loaded = Value;
  const Value* values = nullptr;
  int stride = 0;

  CUTLASS_DEVICE Loaded load(int column) const { return values[column * stride]; }
  CUTLASS_DEVICE Value value(Loaded loaded) const { return loaded; }
};

struct BiasValues {
  using Value = float;
  using Loaded = uint32_t;
  BiasVector bias = {nullptr, ElementType::kFloat16};
  uint32_t missing = 0;  // the bits for all where there is no vector

  CUTLASS_DEVICE Loaded load(int column) const {
    return bias.values == nullptr ? missing : bias.bits(column);
  }
  CUTLASS_DEVICE Value value(Loaded loaded) const { return bias.value(loaded); }
};

template <typename Source>
struct OctetArguments {
  Source source;
  int last = 0;  // column
};

template <typename Config, typename Source>
struct VisitorOctets : VisitorBase<OctetArguments<Source>> {
  using VisitorBase<OctetArguments<Source>>::VisitorBase;
  using Value = typename Source::Value;
  static constexpr int kColumns = 2 * kStepOctets<Config>;

  struct Callbacks : evt::detail::EmptyCallbacks {
    const OctetArguments<Source>* params;
    int column0;
    Value values[kColumns];

    CUTLASS_DEVICE Callbacks(const OctetArguments<Source>* params, int column0)
        : params(params), column0(column0) {}

    CUTLASS_DEVICE void begin_step(int step) {
      typename Source::Loaded loaded[kColumns];
      const int first = column0 + 8 * step * kStepOctets<Config>;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kColumns; ++i) {
        loaded[i] = params->source.load(min(first + i / 2 * 8 + i % 2, params->last));
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kColumns; ++i) values[i] = params->source.value(loaded[i]);
    }

    template <typename Sum>
    CUTLASS_DEVICE cutlass::Array<Value, 2> visit(int, int, int octet, int,
                                                  const cutlass::Array<Sum, 2>&) {
      const int i = 2 * (octet % kStepOctets<Config>);
      return {values[i], values[i + 1]};
    }
  };

  template <typename Shape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread, const Shape&) {
    return Callbacks(this->params,
                     tile.n() * Config::kTile.n + Config::warp_column(thread) + thread % 4 * 2);
  }
};

}  // namespace mixed_gemm
