// One scale a column, which the output multiplies: nothing to do. What other ways to scale do
// otherwise they define themselves (weight_scaling.cuh, sum_scaling.cuh). `scales`: where the stage
// of k-tile `tile` has them.
#pragma once
#include "dequant/folding_converter.h"
#include "wgmma/staged_scales.cuh"

namespace mixed_gemm {

template <typename Config>
class NoScaling {
  using Sums = typename Config::Sums;

 public:
  static constexpr ZeroPoints kZeroPoints = ZeroPoints::kNone;

  NoScaling() = default;
  // A run of k-tiles from `begin` on.
  __device__ NoScaling(const StagedScales&, int /*begin*/) {}

  // Where products are summed.
  __device__ float* products(Sums& sums) { return sums.data(); }

  // In front of the products of `tile`. Whether these begin a sum of their own.
  __device__ bool enter(uint32_t /*scales*/, int /*tile*/, Sums&) { return false; }

  // Whether scales are loaded in front of the last products of the k-tile before, if those of
  // `tile` have come by then.
  static constexpr bool kLooksAhead = false;
  __device__ void look_ahead(int /*tile*/) {}
  __device__ void load_ahead(uint32_t /*scales*/) {}

  // In front of the conversion of `step`, and behind the products of the step before it.
  __device__ void prepare(uint32_t /*scales*/, int /*tile*/, int /*step*/) {}

  // Row tile t, column g + 8 * half.
  __device__ void convert(uint32_t word, int /*step*/, int step_of_word, int /*t*/, int /*half*/,
                          uint32_t (&pairs)[2]) const {
    using Converter = FoldingConverter<typename Config::Format, Config::kBits>;
    Converter::convert_step(word, step_of_word, pairs);
  }

  // Behind the last k-tile, and the wait for its products.
  __device__ void finish(Sums&) {}

  // Whether there were zero points that the conversion did not take away.
  __device__ bool missed() const { return false; }
};

}  // namespace mixed_gemm
