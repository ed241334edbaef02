// The epilogue of the scaled GEMMs that CUTLASS's kernel calls behind the mainloop: values of a
// visitor tree take the place of the sums, and are stored as any float type.
#pragma once
#include "epilogue/fragment_epilogue.cuh"
#include "epilogue/scaled_trees.cuh"

namespace mixed_gemm {

// It goes by columns, so that a leaf of columns holds a few values, which serve all rows. The store
// stands behind the trees and not at the root of each: unrolled, it is most of the machine code.
template <typename Config, typename Mma>
class ScaledFragmentEpilogue
    : public FragmentEpilogueTypes<Mma, cutlass::half_t,
                                   ScaledTrees<Config, typename Mma::ElementC>> {
  using Trees = ScaledTrees<Config, typename Mma::ElementC>;
  using Params = typename Trees::Params;

 public:
  template <typename SharedStorage>
  CUTLASS_DEVICE ScaledFragmentEpilogue(const Params& params, SharedStorage&, int, int, int)
      : params_(params) {}

  template <typename ProblemShape>
  CUTLASS_DEVICE void operator()(const typename Mma::FragmentC& sums, cutlass::gemm::GemmCoord tile,
                                 const ProblemShape& problem, int thread) {
    float values[Config::kAccumulators];
    Trees::choose(params_, [&](auto tree) {
      auto callbacks = tree.get_callbacks(tile, thread, problem);
      evaluate(callbacks, sums, values);
    });
    params_.out.template store<Config::kMmaM, Config::kMmaN>(
        values, tile.m() * Config::kTile.m + Config::warp_row(thread),
        tile.n() * Config::kTile.n + Config::warp_column(thread), thread % 32, kAllStoreBlocks);
  }

 private:
  template <typename Callbacks>
  CUTLASS_DEVICE void evaluate(Callbacks& callbacks, const typename Mma::FragmentC& sums,
                               float* values) {
    constexpr int kOctets = kStepOctets<Config>;
    static_assert(Config::kMmaN % kOctets == 0, "every step has all its columns");
    callbacks.begin_epilogue();
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < Config::kMmaN / kOctets; ++step) {
      callbacks.begin_step(step);
      CUTLASS_PRAGMA_UNROLL
      for (int j = step * kOctets; j < (step + 1) * kOctets; ++j) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < 2 * Config::kMmaM; ++i) {
          const auto pair = callbacks.visit(step, i, j, 0, pair_of<Config>(sums, i, j));
          values[pair_index<Config::kMmaM>(i, j)] = pair[0];
          values[pair_index<Config::kMmaM>(i, j) + 1] = pair[1];
        }
      }
      callbacks.end_step(step);
    }
    callbacks.end_epilogue();
  }

  const Params& params_;
};

}  // namespace mixed_gemm
