// A warp's accumulators -> outputs, without shared memory. mma leaves a lane two neighbouring
// columns of four octets; the quad exchanges them so that each lane has one whole octet, 16 bytes
// of output. CUTLASS's epilogue, which exchanges through shared memory, took 12 of 92 us at 128 x
// 28672 x 4096 on an H200.
#pragma once
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

// Before: sums[2 o], sums[2 o + 1] are columns 2 q, 2 q + 1 of octet o (q = lane % 4). After: sums
// are the columns of octet q.
__device__ inline void transpose_quad(cutlass::Array<float, kOutputsPerAccess>& sums, int q) {
  const auto exchange = [&](int low, int high, int bit) {  // element `high` of lanes without `bit`
    const bool upper = (q & bit) != 0;                     // for element `low` of lanes with it
    const float received = __shfl_xor_sync(0xffffffff, upper ? sums[low] : sums[high], bit);
    (upper ? sums[low] : sums[high]) = received;
  };
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < 2; ++i) {
    exchange(i, 2 + i, 1);
    exchange(4 + i, 6 + i, 1);
  }
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < 4; ++i) exchange(i, 4 + i, 2);
}

template <typename Element>
struct TileOutput {
  OutputParams<Element> output;
  int m;
  float* partials;         // parallel split: fp32 sums [slices, m, partial_stride]
  int64_t partial_stride;  // a multiple of 8

  // accumulators: tile (i, j) of 16 x 8 at i + j * kMmaM. slice: of a parallel split, whose sums
  // are stored; -1: finish the output.
  template <int kMmaM, int kMmaN>
  __device__ void store(const float* accumulators, int slice, int row0, int column0,
                        int lane) const {
    const int g = lane / 4, q = lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kMmaN; j += 4) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMmaM; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          cutlass::Array<float, kOutputsPerAccess> sums;
          CUTLASS_PRAGMA_UNROLL
          for (int e = 0; e < kOutputsPerAccess; ++e) {
            sums[e] = accumulators[4 * (i + (j + e / 2) * kMmaM) + 2 * half + e % 2];
          }
          transpose_quad(sums, q);
          const int row = row0 + 16 * i + 8 * half + g;
          int column = column0 + 8 * (j + q);
          asm volatile("" : "+r"(column));     // compare anew: ptxas spilled the predicate
          if (row < m && column < output.n) {  // no `continue`: the next exchange needs all lanes
            if (slice < 0) {
              finish_output(output, row, column, sums);
            } else {
              auto* target = reinterpret_cast<float4*>(
                  partials + (static_cast<int64_t>(slice) * m + row) * partial_stride + column);
              __stcg(target, make_float4(sums[0], sums[1], sums[2], sums[3]));
              __stcg(target + 1, make_float4(sums[4], sums[5], sums[6], sums[7]));
            }
          }
          __syncwarp();
        }
      }
    }
  }
};

}  // namespace mixed_gemm
