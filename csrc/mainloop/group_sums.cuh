// Scales that meet fp32 sums instead of weights: for each weight of a group that is a
// multiplication less, for each sum and group one more, so it pays for 16 tokens. Zero points meet
// the sums of the activations (from an mma with ones), so that none is subtracted from a weight:
// out += s * (sum(q a) - z * sum(a)), or s * sum(q a) + z * sum(a). And so does the bias of the
// layout then, dequant/stored_converter.h.
//
// What is added up belongs to one group; the mainloop says when it ends. Sums and scales wait for
// the conversions of the next k-tile, which hide the latency of the last products.
#pragma once
#include "core/quant_scheme.h"
#include "cutlass/array.h"
#include "mainloop/scale_operand.cuh"

namespace mixed_gemm {

template <typename Config>
class GroupSums {
  using Element = typename Config::Element;
  using Quad = cutlass::Array<float, 4>;
  static constexpr bool kZeros = has_zeros(Config::kMode);

 public:
  // Accumulator (i, j) of the warp tile is at i + j * kMmaM, as in the mainloop.
  Quad products[Config::kMmaM * Config::kMmaN];
  Quad activations[Config::kMmaM];  // every column holds the sum of the row

  __device__ GroupSums() {
    clear();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) scales_[j] = zeros_[j] = 0;
  }

  // Of the columns of a lane's sums: 2 (lane % 4) and the next one of each octet.
  __device__ void load_scales(const uint8_t* stage, int warp_column0, int lane) {
    const auto* at = reinterpret_cast<const uint32_t*>(stage) + warp_column0 / 2 + lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int octet = 0; octet < Config::kMmaN; ++octet) {
      scales_[octet] = at[4 * octet];
      if (kZeros) zeros_[octet] = at[ScaleCopy<Config>::kOperandBytes / 4 + 4 * octet];
    }
  }

  // accumulators += what the group's weights are worth, in kUnit; then all sums are 0 again.
  __device__ void flush(ZeroMode zero_mode, Quad* accumulators) {
    if (kZeros && zero_mode == ZeroMode::kAdd) {
      flush<true>(accumulators);
    } else {
      flush<false>(accumulators);
    }
    clear();
  }

 private:
  template <bool kAdds>
  __device__ void flush(Quad* accumulators) {
    constexpr float kUnit = Config::Converter::kUnit, kBias = Config::Converter::kBias * kUnit;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMmaN; ++j) {
      float scale[2], zero[2];
      unpack(scales_[j], scale);
      unpack(zeros_[j], zero);
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) zero[e] = kAdds ? zero[e] * kUnit : fmaf(zero[e], -kUnit, -kBias);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMmaM; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          float product = products[i + j * Config::kMmaM][e];
          const float tokens = activations[i][e];
          if constexpr (kZeros) product = fmaf(tokens, kAdds ? -kBias : zero[e % 2], product);
          float& sum = accumulators[i + j * Config::kMmaM][e];
          sum = fmaf(product, scale[e % 2], sum);
          if constexpr (kAdds) sum = fmaf(tokens, zero[e % 2], sum);
        }
      }
    }
  }

  __device__ void clear() {
    CUTLASS_PRAGMA_UNROLL
    for (Quad& sum : products) sum.clear();
    CUTLASS_PRAGMA_UNROLL
    for (Quad& sum : activations) sum.clear();
  }
  static __device__ void unpack(uint32_t pair, float (&values)[2]) {
    const auto& two = reinterpret_cast<const cutlass::Array<Element, 2>&>(pair);
    values[0] = float(two[0]);
    values[1] = float(two[1]);
  }

  uint32_t scales_[Config::kMmaN], zeros_[Config::kMmaN];
};

// Where weights are scaled.
template <typename Config>
struct NoGroupSums {};

}  // namespace mixed_gemm
