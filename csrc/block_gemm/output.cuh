// The epilogue of a warp's fp32 sums: bias -> activation -> outputs of any float type.
#pragma once
#include "epilogue/activate_all.cuh"
#include "epilogue/float_matrix.cuh"

namespace mixed_gemm {

struct BlockOutput {
  FloatMatrix output;
  const void* bias;  // [n] of output.type, or null
  Activation activation;

  static constexpr bool kStoresPartials = false;

  // Takes the arguments of TileOutput::store.
  template <int kMmaM, int kMmaN>
  __device__ void store(float* sums, int row0, int column0, int lane, uint32_t store_blocks) const {
    if (bias != nullptr) add_bias<kMmaM, kMmaN>(sums, column0 + lane % 4 * 2);
    if (activation != Activation::kIdentity) activate_all<4 * kMmaM * kMmaN>(activation, sums);
    output.store<kMmaM, kMmaN>(sums, row0, column0, lane, store_blocks);
  }

 private:
  __device__ float bias_of(int column) const {
    if (column >= output.n) return 0.f;
    switch (output.type) {
      case ElementType::kFloat16:
        return float(static_cast<const cutlass::half_t*>(bias)[column]);
      case ElementType::kBFloat16:
        return float(static_cast<const cutlass::bfloat16_t*>(bias)[column]);
      case ElementType::kFloat32:
        break;
    }
    return static_cast<const float*>(bias)[column];
  }

  template <int kMmaM, int kMmaN>
  __device__ void add_bias(float* sums, int column) const {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; ++j) {
      const float2 pair = make_float2(bias_of(column + 8 * j), bias_of(column + 8 * j + 1));
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        sums[pair_index<kMmaM>(i, j)] += pair.x;
        sums[pair_index<kMmaM>(i, j) + 1] += pair.y;
      }
    }
  }
};

}  // namespace mixed_gemm
