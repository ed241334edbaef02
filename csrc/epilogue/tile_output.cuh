// The epilogue of the multistage family on the accumulators of a warp: scale and bias, activation,
// store; or, of a parallel split, the sums as they are. Working on one octet of outputs at a time,
// as finish_output.cuh does, was two thirds of the machine code.
#pragma once
#include "epilogue/activate_all.cuh"
#include "epilogue/finish_output.cuh"
#include "epilogue/store_tile.cuh"

namespace mixed_gemm {

template <typename Element, typename Factor>
struct TileOutput {
  OutputParams<Element, Factor> output;
  int m;
  float* partials;         // parallel split: fp32 sums [slices, m, partial_stride]
  int64_t partial_stride;  // a multiple of 8

  static constexpr bool kStoresPartials = true;

  // Stores the sums of a slice of a parallel split as they are.
  template <int kMmaM, int kMmaN>
  __device__ void store_partials(const float* accumulators, int slice, int row0, int column0,
                                 int lane) const {
    const PairMatrix<float> sums{partials + static_cast<int64_t>(slice) * m * partial_stride, m,
                                 output.n, partial_stride};
    sums.template store<kMmaM, kMmaN>(accumulators, row0, column0, lane);
  }

  // Runs the epilogue on these store blocks (store_tile.cuh) and stores. accumulators: used up.
  template <int kMmaM, int kMmaN>
  __device__ void store(float* accumulators, int row0, int column0, int lane,
                        uint32_t store_blocks) const {
    if (output.channel_scale != nullptr || output.bias != nullptr) {
      scale_and_bias<kMmaM, kMmaN>(accumulators, column0 + lane % 4 * 2);
    }
    if (output.activation != Activation::kIdentity) {
      activate_all<4 * kMmaM * kMmaN>(output.activation, accumulators);
    }
    RoundedMatrix<Element>{output.d, m, output.n}.template store<kMmaM, kMmaN>(
        accumulators, row0, column0, lane, store_blocks);
  }

 private:
  // The values of columns column, column + 1; `missing` where there are none, or past n.
  template <typename Value>
  __device__ float2 pair_of(const Value* values, float missing, int column) const {
    float2 pair = make_float2(missing, missing);
    if (values != nullptr) {
      if (column < output.n) pair.x = float(values[column]);
      if (column + 1 < output.n) pair.y = float(values[column + 1]);
    }
    return pair;
  }

  template <int kMmaM, int kMmaN>
  __device__ void scale_and_bias(float* accumulators, int column) const {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const float2 scale = pair_of(output.channel_scale, 1.f, column + 8 * j);
      const float2 bias = pair_of(output.bias, 0.f, column + 8 * j);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        float* pair = accumulators + pair_index<kMmaM>(i, j);
        pair[0] = fmaf(pair[0], scale.x, bias.x);
        pair[1] = fmaf(pair[1], scale.y, bias.y);
      }
    }
  }
};

}  // namespace mixed_gemm
