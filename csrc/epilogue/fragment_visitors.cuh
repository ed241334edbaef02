// Nodes of epilogue visitor trees on the accumulators where mma.sync left them: the two that the
// multistage family needs beside CUTLASS's, values of columns and a store, both for any n.
#pragma once
#include "epilogue/store_tile.cuh"
#include "epilogue/visitor_base.cuh"

namespace mixed_gemm {

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

// Rounds once, then stores rows by quads of lanes, 16 bytes at once (epilogue/store_tile.cuh).
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

}  // namespace mixed_gemm
