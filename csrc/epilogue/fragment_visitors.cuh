// Epilogue visitor trees (EVT) of CUTLASS on the accumulators where mma.sync left them: no exchange
// through shared memory, any n. What CUTLASS lacks for that are two nodes, one that loads values of
// columns and one that stores.
#pragma once
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/threadblock/default_thread_map_tensor_op.h"
#include "cutlass/epilogue/threadblock/fusion/visitors.hpp"
#include "cutlass/gemm/gemm.h"
#include "epilogue/store_tile.cuh"

namespace mixed_gemm {

namespace evt = cutlass::epilogue::threadblock;

// What every leaf and store here has of a node's interface.
template <typename Arguments_>
struct VisitorBase {
  using Arguments = Arguments_;
  using Params = Arguments;
  struct SharedStorage {};

  template <typename Shape>
  static constexpr Params to_underlying_arguments(const Shape&, const Arguments& arguments, void*) {
    return arguments;
  }
  template <typename Shape>
  static size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }
  CUTLASS_HOST_DEVICE VisitorBase() {}
  CUTLASS_HOST_DEVICE VisitorBase(const Params& params, const SharedStorage&) : params(&params) {}

  const Params* params;
};

template <typename Element>
struct ColumnArguments {
  const Element* values = nullptr;  // [n]; null: `missing` for all
  Element missing;
  int n = 0;
};

// A value for each column. VisitorRowBroadcast reads whole vectors, past the end of an odd n.
template <typename Config, typename Element>
struct VisitorColumns : VisitorBase<ColumnArguments<Element>> {
  using Base = VisitorBase<ColumnArguments<Element>>;
  using Base::Base;
  using Pair = cutlass::Array<Element, 2>;

  struct Callbacks : evt::detail::EmptyCallbacks {
    Pair pairs[Config::kMmaN];

    template <typename Sum, int kSize>
    CUTLASS_DEVICE Pair visit(int, int, int column, int, const cutlass::Array<Sum, kSize>&) {
      return pairs[column];
    }
  };

  template <typename Shape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread, const Shape&) {
    const ColumnArguments<Element>& p = *this->params;
    const int column0 = tile.n() * Config::kTile.n + Config::warp_column(thread) + thread % 4 * 2;
    Callbacks callbacks;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int column = column0 + 8 * j + e;
        callbacks.pairs[j][e] = p.values != nullptr && column < p.n ? p.values[column] : p.missing;
      }
    }
    return callbacks;
  }
};

template <typename Element>
struct StoreArguments {
  Element* d = nullptr;  // [m, n], contiguous
  int m = 0, n = 0;
};

// One rounding, then rows by quads of lanes, 16 bytes at once (epilogue/store_tile.cuh).
template <typename Config, typename Element>
struct VisitorQuadStore : VisitorBase<StoreArguments<Element>> {
  using Base = VisitorBase<StoreArguments<Element>>;
  using Base::Base;
  using Matrix = RoundedMatrix<Element>;

  struct Callbacks : evt::detail::EmptyCallbacks {
    Matrix matrix;
    int row0, column0, quad;
    uint32_t words[Config::kMmaN];

    CUTLASS_DEVICE Callbacks(const StoreArguments<Element>& p, int row0, int column0, int quad)
        : matrix{p.d, p.m, p.n}, row0(row0), column0(column0), quad(quad) {}

    template <typename Sum, int kSize>
    CUTLASS_DEVICE cutlass::Array<float, 2> visit(int, int, int column, int,
                                                  const cutlass::Array<Sum, kSize>&,
                                                  const cutlass::Array<float, 2>& pair) {
      words[column] = Matrix::rounded(pair[0], pair[1]);
      return pair;
    }
    CUTLASS_DEVICE void end_row(int row) {
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Config::kMmaN; j += 4) {
        uint32_t four[4] = {};
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4 && j + e < Config::kMmaN; ++e) four[e] = words[j + e];
        transpose_quad(four, quad);
        if (Config::kMmaN % 4 == 0 || j + quad < Config::kMmaN) {
          matrix.store_octet(four, row0 + 8 * row, column0 + 8 * (j + quad));
        }
      }
    }
  };

  template <typename Shape>
  CUTLASS_DEVICE auto get_callbacks(cutlass::gemm::GemmCoord tile, int thread, const Shape&) {
    return Callbacks(*this->params,
                     tile.m() * Config::kTile.m + Config::warp_row(thread) + thread % 32 / 4,
                     tile.n() * Config::kTile.n + Config::warp_column(thread), thread % 4);
  }
};

// What CUTLASS's kernel calls behind the mainloop: shows a tree the accumulators of a warp, two
// columns at a time.
template <typename Config, typename Mma, typename Tree>
class FragmentEpilogue {
 public:
  using FusionCallbacks = Tree;
  using Shape = typename Mma::Shape;
  using WarpMmaOperator = typename Mma::Operator;
  struct OutputTileIterator {
    using Element = typename Config::Element;
    using Layout = cutlass::layout::RowMajor;
    static constexpr int kElementsPerAccess = 1;
    struct Params {
      Params() = default;
      CUTLASS_HOST_DEVICE Params(const Layout&) {}
    };
  };
  struct OutputOp {
    using ElementAccumulator = typename Mma::ElementC;
    using Params = typename Tree::Arguments;
  };
  using Params = typename Tree::Params;
  struct SharedStorage {
    typename Tree::SharedStorage tree;
  };

  CUTLASS_DEVICE FragmentEpilogue(const Params& params, SharedStorage& storage, int, int, int)
      : tree_(params, storage.tree) {}

  template <typename ProblemShape>
  CUTLASS_DEVICE void operator()(const typename Mma::FragmentC& sums, cutlass::gemm::GemmCoord tile,
                                 const ProblemShape& problem, int thread) {
    auto callbacks = tree_.get_callbacks(tile, thread, problem);
    callbacks.begin_epilogue();
    callbacks.begin_step(0);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2 * Config::kMmaM; ++i) {
      callbacks.begin_row(i);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < Config::kMmaN; ++j) {
        cutlass::Array<typename Mma::ElementC, 2> pair;
        pair[0] = sums[pair_index<Config::kMmaM>(i, j)];
        pair[1] = sums[pair_index<Config::kMmaM>(i, j) + 1];
        callbacks.visit(0, i, j, i * Config::kMmaN + j, pair);
      }
      callbacks.end_row(i);
    }
    callbacks.end_step(0);
    callbacks.end_epilogue();
  }

 private:
  Tree tree_;
};

}  // namespace mixed_gemm
