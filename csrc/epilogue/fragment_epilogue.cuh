// Epilogues that CUTLASS's kernel calls behind the mainloop, for visitor trees on the accumulators
// where mma.sync left them: no exchange through shared memory, any n.
#pragma once
#include "epilogue/store_tile.cuh"
#include "epilogue/visitor_base.cuh"

namespace mixed_gemm {

// The types that CUTLASS's kernel expects of an epilogue. FusionCallbacks_: a tree, or a type that
// chooses one.
template <typename Mma, typename Element_, typename FusionCallbacks_>
struct FragmentEpilogueTypes {
  using FusionCallbacks = FusionCallbacks_;
  using Shape = typename Mma::Shape;
  using WarpMmaOperator = typename Mma::Operator;
  struct OutputTileIterator {
    using Element = Element_;
    using Layout = cutlass::layout::RowMajor;
    static constexpr int kElementsPerAccess = 1;
    struct Params {
      Params() = default;
      CUTLASS_HOST_DEVICE Params(const Layout&) {}
    };
  };
  struct OutputOp {
    using ElementAccumulator = typename Mma::ElementC;
    using Params = typename FusionCallbacks::Arguments;
  };
  using Params = typename FusionCallbacks::Params;
  struct SharedStorage {
    typename FusionCallbacks::SharedStorage tree;
  };
};

// The two accumulators of rows 8 i .. 8 i + 7 and columns 8 j .. 8 j + 7 of a warp's tile.
template <typename Config, typename Sums>
CUTLASS_DEVICE cutlass::Array<typename Sums::Element, 2> pair_of(const Sums& sums, int i, int j) {
  const int index = pair_index<Config::kMmaM>(i, j);
  cutlass::Array<typename Sums::Element, 2> pair;
  pair[0] = sums[index];
  pair[1] = sums[index + 1];
  return pair;
}

// Shows a tree, whose root stores, the accumulators of a warp row by row, two columns at a time.
template <typename Config, typename Mma, typename Tree>
class FragmentEpilogue : public FragmentEpilogueTypes<Mma, typename Config::Element, Tree> {
  using Types = FragmentEpilogueTypes<Mma, typename Config::Element, Tree>;

 public:
  CUTLASS_DEVICE FragmentEpilogue(const typename Types::Params& params,
                                  typename Types::SharedStorage& storage, int, int, int)
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
        callbacks.visit(0, i, j, i * Config::kMmaN + j, pair_of<Config>(sums, i, j));
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
