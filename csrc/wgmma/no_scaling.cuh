// One scale a column, which the epilogue applies: nothing to do here. Other ways to scale define
// what they do otherwise (weight_scaling.cuh, sum_scaling.cuh).
//
// WgmmaMainloop::multiply_tiles calls, for a run of k-tiles:
//   constructor, products()     once
//   see_next, load_next         for the first k-tile, when its stage is full
//   prepare_step, convert       for the first steps of it
//   begin_tile                  for each k-tile, in front of its first products; behind these
//     see_next                  for the k-tile after it
//     load_next                 for that one, when its stage is full
//     prepare_step, convert     for each step, behind the products of the step before it: the last
//                               of these calls are for the k-tile after it
//   finish, missed()            once, behind the last products
// Calls for the k-tile behind the last one are in vain. `scales`: where the stage of k-tile `tile`
// has them.
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

  // The registers where products are summed.
  __device__ float* products(Sums& sums) { return sums.data(); }

  // Whether the products of the k-tile begin a sum of their own.
  __device__ bool begin_tile(uint32_t /*scales*/, int /*tile*/, Sums&) { return false; }

  // Whether scales are loaded in front of the last products of the k-tile before, if they have come
  // by then.
  static constexpr bool kLooksAhead = false;
  __device__ void see_next(int /*tile*/) {}
  __device__ void load_next(uint32_t /*scales*/) {}

  // Makes the factors for convert() of the scales of a step.
  __device__ void prepare_step(uint32_t /*scales*/, int /*tile*/, int /*step*/) {}

  // Converts weights of row tile t, column g + 8 * half.
  __device__ void convert(const typename Config::Converter& converter, uint32_t word, int /*step*/,
                          int step_of_word, int /*t*/, int /*half*/, uint32_t (&pairs)[2]) const {
    converter.convert_step(word, step_of_word, pairs);
  }

  // Adds the products of the last group to the sums.
  __device__ void finish(Sums&) {}

  // Whether there were zero points that the conversion did not take away.
  __device__ bool missed() const { return false; }
};

}  // namespace mixed_gemm
