// A warp multiplies a row block by one column of its expert's weight: lanes share out K, convert 8
// weights of it at a time as dequantizing does (transform/dequantize.cuh), and add up in fp32.
#pragma once
#include "epilogue/activation.h"
#include "grid/pdl.cuh"
#include "grouped/row_blocks.h"
#include "grouped_plain/config.h"
#include "problem/grouped_gemm.h"
#include "transform/dequantize.cuh"

namespace mixed_gemm {

struct GroupedPlainParams {
  GemmProblem gemm;  // of expert 0
  RowBlocks row_blocks;
  int64_t packed_stride, scale_stride;  // from an expert to the next one: bytes, elements
};

// An element of an array that may not be there.
template <typename T>
__device__ const T* element_at(const void* values, int64_t at) {
  return values == nullptr ? nullptr : static_cast<const T*>(values) + at;
}

template <typename Element, typename Weight>
class GroupedPlainColumn {
  using Layout = WeightLayout<Weight>;
  static constexpr int kPairs = Layout::kPerWord / 2;  // vectors of 8 k in 16 bytes
  static constexpr int kVectorsPerTile = Layout::kBlocksPerTile * kPairs;

 public:
  __device__ GroupedPlainColumn(const GroupedPlainParams& params, const RowBlock& block, int column)
      : p_(params.gemm), block_(block), column_(column) {
    packed_ = p_.b_packed + block.expert * params.packed_stride;
    scales_ = element_at<Element>(p_.scales, block.expert * params.scale_stride + column);
    zeros_ = element_at<Element>(p_.zeros, block.expert * params.scale_stride + column);
    const int64_t at = block.expert * p_.n + column;
    const float* factor = element_at<float>(p_.factor, at);
    const Element* bias = element_at<Element>(p_.bias, at);
    factor_ = factor == nullptr ? 1.f : *factor;
    bias_ = bias == nullptr ? 0.f : float(*bias);
  }

  __device__ void run() {
    float sums[kPlainRows] = {};
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int64_t vectors = ceil_div(p_.k, kTileK) * kVectorsPerTile;
    for (int64_t vector = lane; vector < vectors; vector += 32) add(vector, sums);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kPlainRows; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int step = 16; step > 0; step /= 2) sums[i] += __shfl_xor_sync(~0u, sums[i], step);
      const int row = block_.row0 + i;
      if (lane == 0 && row < block_.row_end) {
        const float out = activate(p_.activation, fmaf(sums[i], factor_, bias_));
        static_cast<Element*>(p_.d)[row * p_.n + column_] = Element(out);
      }
    }
  }

 private:
  // Adds 8 elements of K.
  __device__ void add(int64_t vector, float (&sums)[kPlainRows]) const {
    const int in_tile = static_cast<int>(vector % kVectorsPerTile), pair = in_tile % kPairs;
    const int64_t k0 =
        vector / kVectorsPerTile * kTileK + in_tile / kPairs * Layout::kBlockK + pair * 8;
    if (k0 >= p_.k) return;
    const auto first = Layout::place(column_, k0, round_up(p_.k, kPadK));
    const auto* words = reinterpret_cast<const uint32_t*>(packed_) + first.word;
    const int64_t group = k0 / p_.scheme.scales.group * p_.scale_stride;
    const float scale = float(scales_[group]);
    const float zero = zeros_ == nullptr ? 0.f : float(zeros_[group]);
    const bool adds = p_.scheme.scales.zeros == ZeroMode::kAdd;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (k0 + i >= p_.k) break;
      const uint32_t code = Places<Weight>::gather(words[i / 2], Layout::slot_of(pair, i % 2));
      const float value = code_to_float<Weight>(code);
      const float weight = adds ? fmaf(value, scale, zero) : (value - zero) * scale;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kPlainRows; ++j) {
        const int64_t row = min(block_.row0 + j, block_.row_end - 1);  // others are not stored
        const float token = float(static_cast<const Element*>(p_.a)[row * p_.a_stride + k0 + i]);
        sums[j] = fmaf(token, weight, sums[j]);
      }
    }
  }

  const GemmProblem& p_;
  const RowBlock block_;
  const int column_;
  const uint8_t* packed_;
  const Element *scales_, *zeros_;
  float factor_, bias_;
};

template <typename Element, typename Weight>
__global__ void __launch_bounds__(32 * kPlainWarps)
    grouped_plain_kernel(const __grid_constant__ GroupedPlainParams params) {
  pdl_wait();  // for the list
  pdl_launch_dependents();
  const int column = static_cast<int>(blockIdx.x * kPlainWarps + threadIdx.x / 32);
  if (static_cast<int>(blockIdx.y) >= *params.row_blocks.count || column >= params.gemm.n) {
    return;
  }
  GroupedPlainColumn<Element, Weight>(params, params.row_blocks.first[blockIdx.y], column).run();
}

}  // namespace mixed_gemm
