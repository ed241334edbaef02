// How an AWQ block ends: its warps meet in shared memory and are added in order. The other blocks
// of a cluster push that to the first one, which adds it in the order of K. (When each finished its
// share of the columns, there were divisions by the number of blocks, some 200 cycles each, and a
// barrier for blocks that must not leave yet.)
//
// Four columns at a time, a chunk: with an output a thread and a store of 4 bytes for every sum,
// the end of a kernel for 32 tokens took 2.7 us at 4096 columns.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "kernel/cluster_sums.cuh"

namespace mixed_gemm {

using AwqQuad = cutlass::Array<float, 4>;

template <typename Config>
class AwqReduction {
  using Element = typename Config::Element;
  static constexpr int kM = Config::kM, kWords = Config::kWords;
  static constexpr int kChunks = Config::kN / 4;  // of a row
  static constexpr int kTile = kM * kChunks;

 public:
  using Accumulators = AwqQuad[4 * kWords][Config::kMTiles];

  static constexpr int smem_bytes(int warps, int split) {
    return ClusterSums::kBytes + (warps / Config::kNWarps + split - 1) * kTile * sizeof(float4);
  }

  __device__ explicit AwqReduction(uint8_t* storage)
      : cluster_(storage), sums_(reinterpret_cast<float4*>(storage + ClusterSums::kBytes)) {}

  // Long before store(), by all threads. rows: of the output, from the block's first on.
  __device__ void start(int rows) {
    if (gridDim.z > 1) {
      cluster_.open((gridDim.z - 1) * min(rows, kM) * kChunks * static_cast<int>(sizeof(float4)));
    }
  }

  // d: the first output of the block's rows.
  __device__ void store(const Accumulators& accumulators, int rows, Element* d, int n) {
    rows = min(rows, kM);
    meet(accumulators, rows);
    const int k_warps = blockDim.x / (32 * Config::kNWarps);
    const int others = gridDim.z - 1, rank = blockIdx.z;
    if (others > 0) cluster_.wait_for_others();
    float4* received = sums_ + k_warps * kTile;  // from the second block on
    for (int at = threadIdx.x; at < rows * kChunks; at += blockDim.x) {
      const int row = at / kChunks, chunk = at % kChunks;
      float4 sum = total(row, chunk, k_warps);
      if (rank > 0) {
        cluster_.push(received + (rank - 1) * kTile + at, sum);
        continue;
      }
      if (others > 0) cluster_.wait();
#pragma unroll 1
      for (int i = 0; i < others; ++i) add(sum, received[i * kTile + at]);
      finish(d, n, row, chunk, sum);
    }
  }

 private:
  // The 8 lanes of a quarter-warp (two g, all q) store to different groups of banks.
  static __device__ int place(int row, int chunk) {
    return row * kChunks + (chunk ^ (row / 2 % 2 | row / 4 % 2 * 4));
  }

  __device__ void meet(const Accumulators& accumulators, int rows) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    float4* mine = sums_ + warp / Config::kNWarps * kTile;
    const int octet = (warp % Config::kNWarps * 8 + g) * kWords;
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < Config::kMTiles; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * j + 2 * q + e;
        if (row >= rows) continue;
        CUTLASS_PRAGMA_UNROLL
        for (int h = 0; h < 2 * kWords; ++h) {
          const AwqQuad &low = accumulators[2 * h][j], &high = accumulators[2 * h + 1][j];
          mine[place(row, 2 * octet + h)] = {low[e], low[e + 2], high[e], high[e + 2]};
        }
      }
    }
    __syncthreads();
  }

  static __device__ void add(float4& sum, const float4& more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }

  __device__ float4 total(int row, int chunk, int k_warps) const {
    const float4* from = sums_ + place(row, chunk);
    float4 sum = *from;
#pragma unroll 4
    for (int warp = 1; warp < k_warps; ++warp) add(sum, from[warp * kTile]);
    return sum;
  }

  __device__ void finish(Element* d, int n, int row, int chunk, const float4& sum) const {
    const int column = blockIdx.x * Config::kN + 4 * chunk;
    if (column >= n) return;  // n is a multiple of 8
    using Four = cutlass::AlignedArray<Element, 4, 8>;
    const auto rounded =
        cutlass::NumericArrayConverter<Element, float, 4>()(reinterpret_cast<const AwqQuad&>(sum));
    *reinterpret_cast<Four*>(d + static_cast<int64_t>(row) * n + column) =
        reinterpret_cast<const Four&>(rounded);
  }

  ClusterSums cluster_;
  float4* sums_;  // of the warps that share out K, then of the other blocks: [kM][kChunks] each
};

}  // namespace mixed_gemm
