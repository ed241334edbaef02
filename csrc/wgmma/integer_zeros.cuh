// Zero points that are whole numbers, as in AWQ and GPTQ: the constants of the conversion take them
// away, and nothing is left to add to a weight. Where fractions have a loop of their own, the first
// group of a run says which loop runs; groups for which that is wrong are corrected behind it
// (wgmma/unfolded_zeros.cuh).
#pragma once
#include "wgmma/staged_scales.cuh"

namespace mixed_gemm {

template <typename Config>
struct IntegerZeros {
  // Whether the zero points of this warpgroup's columns are whole in the stage whose scales are at
  // `scales`. All its threads ask.
  static __device__ bool lead(const ZeroFolding& folding, uint32_t scales) {
    using Staged = StagedColumns<Config>;
    if (folding.mask == 0) return false;  // "add" takes them to be parts of weights
    uint32_t missed = 0;
    CUTLASS_PRAGMA_UNROLL
    for (int t = 0; t < Config::kRowTiles; ++t) {
      uint32_t loaded[2];
      load_transposed(scales + Staged::lane_offset() + t * Staged::kRowTileBytes, loaded);
      Config::Converter::fold_whole(loaded[1], missed);
    }
    // Warpgroups may go on differently (not to wait for the other one: 0.99 to 1.00). The compiler
    // does not know that all threads have the same answer, and would write loops for others.
    return __all_sync(~0u, Config::meet_warpgroup_if_all(!is_any(missed)));
  }

  // Whether fold_whole() missed any: -0 in place of 0 does not count.
  static __device__ bool is_any(uint32_t missed) { return (missed & 0x7fff7fffu) != 0; }
};

}  // namespace mixed_gemm
