// Scales that meet fp32 sums instead of weights: for each weight of a group that is a
// multiplication less, for each sum and group one more, so it pays for 16 tokens. Zero points and
// the bias of stored weights are in mainloop/zero_products.cuh.
//
// A sum belongs to one group; the mainloop says when that ends. Sums and scales wait for the
// conversions of the next k-tile, which hide the latency of the last products.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/array.h"
#include "mainloop/scale_operand.cuh"

namespace mixed_gemm {

template <typename Config>
class GroupScaling {
  using Element = typename Config::Element;
  using Quad = cutlass::Array<float, 4>;

 public:
  // Accumulator (i, j) of the warp tile is at i + j * kMmaM, as in the mainloop.
  Quad products[Config::kMmaM * Config::kMmaN];

  __device__ GroupScaling() {
    clear();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) scales_[j] = 0;
  }

  // Loads the scales of a lane's columns: 2 (lane % 4) and the next one of each octet.
  __device__ void load_scales(const uint8_t* stage, int warp_column0, int lane) {
    const auto* at = reinterpret_cast<const uint32_t*>(stage) + warp_column0 / 2 + lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int octet = 0; octet < Config::kMmaN; ++octet) scales_[octet] = at[4 * octet];
  }

  // Adds scale * sum to the accumulators, and sets all sums to 0.
  __device__ void flush(Quad* accumulators) {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      float scale[2];
      unpack(scales_[j], scale);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMmaM; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          float& sum = accumulators[i + j * Config::kMmaM][e];
          sum = fmaf(products[i + j * Config::kMmaM][e], scale[e % 2], sum);
        }
      }
    }
    clear();
  }

 private:
  __device__ void clear() {
    CUTLASS_PRAGMA_UNROLL
    for (Quad& sum : products) sum.clear();
  }
  static __device__ void unpack(uint32_t pair, float (&values)[2]) {
    const auto& two = reinterpret_cast<const cutlass::Array<Element, 2>&>(pair);
    values[0] = float(two[0]);
    values[1] = float(two[1]);
  }

  uint32_t scales_[Config::kMmaN];
};

// Does nothing, where weights are scaled.
template <typename Config>
struct NoGroupScaling {};

}  // namespace mixed_gemm
