// Rounds int32 sums of an int8 convolution to int8 outputs by the formula of problem/conv.h.
#pragma once
#include "conv_int8/requantization.h"
#include "epilogue/store_tile.cuh"

namespace mixed_gemm {

struct RequantizedOutput {
  const Requantization* channels;  // [n]
  int8_t* d;                       // [m, n], contiguous
  int m, n;
  float clamp_min, clamp_max;

  static constexpr bool kStoresPartials = false;

  template <int kMmaM, int kMmaN>
  __device__ void store(const int32_t* sums, int row0, int column0, int lane,
                        uint32_t store_blocks) const {
    const int g = lane / 4, q = lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; j += 4) {
      Requantization of[4][2];  // of columns 2 q and 2 q + 1 of four octets
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 8; ++e) {
        const int column = column0 + 8 * (j + e / 2) + 2 * q + e % 2;
        of[e / 2][e % 2] = channels[min(column, n - 1)];
      }
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2 * kMmaM; ++i) {
        if (!stores_block<kMmaM>(store_blocks, i / 2, j)) continue;  // alike in all lanes
        uint32_t words[4] = {};
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4 && j + e < kMmaN; ++e) {
          const int32_t* pair = sums + pair_index<kMmaM>(i, j + e);
          words[e] = requantized(pair[0], of[e][0]) | requantized(pair[1], of[e][1]) << 8;
        }
        transpose_quad(words, q);
        if (kMmaN % 4 == 0 || j + q < kMmaN) {
          store_octet(words, row0 + 8 * i + g, column0 + 8 * (j + q));
        }
      }
    }
  }

 private:
  __device__ uint32_t requantized(int32_t sum, const Requantization& of) const {
    const float scaled = __fmul_rn(static_cast<float>(sum - of.zero_sum), of.multiplier);
    const float y = __fadd_rn(scaled, of.offset);
    return static_cast<uint8_t>(
        static_cast<int8_t>(__float2int_rn(fminf(fmaxf(y, clamp_min), clamp_max))));
  }

  // words: two columns in the low half of each.
  __device__ void store_octet(const uint32_t (&words)[4], int row, int column) const {
    if (row >= m || column >= n) return;
    int8_t* target = d + static_cast<int64_t>(row) * n + column;
    if (n % kOctet == 0) {  // then every octet starts on 8 bytes
      *reinterpret_cast<uint2*>(target) =
          make_uint2(words[0] | words[1] << 16, words[2] | words[3] << 16);
      return;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      if (column + i < n) target[i] = static_cast<int8_t>(words[i / 2] >> (i % 2 * 8));
    }
  }
};

}  // namespace mixed_gemm
