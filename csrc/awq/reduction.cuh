// How an AWQ block ends: its warps reduce their sums in shared memory, in order. The other blocks
// of a cluster push theirs to the one that stores the row, which reduces them in the order of K.
// With up to 16 tokens that is the first block, with 32 each has its share of the rows
// (4096 x 4096: 8.3 us for 8.6 at M = 32, but 6.0 for 5.7 at M = 2).
//
// A thread takes a chunk of four columns: with an output a thread and a store of 4 bytes for every
// sum, the end of a kernel for 32 tokens took 2.7 us at 4096 columns.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "grid/cluster_mbarrier.cuh"

namespace mixed_gemm {

using AwqQuad = cutlass::Array<float, 4>;

template <typename Config>
class AwqReduction {
  using Element = typename Config::Element;
  static constexpr int kM = Config::kM, kWords = Config::kWords;
  static constexpr int kChunks = Config::kN / 4;  // of a row
  static constexpr int kTile = kM * kChunks;
  static constexpr bool kShares = Config::kMTiles == 4;  // every block of a cluster reduces rows

 public:
  using Accumulators = AwqQuad[4 * kWords][Config::kMTiles];

  static constexpr int smem_bytes(int warps, int split) {
    return ClusterMbarrier::kBytes + (warps / Config::kNWarps + split - 1) * kTile * sizeof(float4);
  }

  __device__ explicit AwqReduction(uint8_t* storage)
      : cluster_(storage), sums_(reinterpret_cast<float4*>(storage + ClusterMbarrier::kBytes)) {}

  // Called long before store(), by all threads. rows: of the output, from the block's first on.
  __device__ void start(int rows) {
    if (gridDim.z == 1) return;
    const int others = gridDim.z - 1;
    cluster_.open(others * rows_of(blockIdx.z, min(rows, kM)) * kChunks *
                  static_cast<int>(sizeof(float4)));
  }

  // Called between the two, where there is time.
  __device__ void wait_for_others() {
    if (gridDim.z > 1) cluster_.wait_for_others();
  }

  // d: the first output of the block's rows.
  __device__ void store(const Accumulators& accumulators, int rows, Element* d, int n) {
    rows = min(rows, kM);
    meet(accumulators, rows);
    if constexpr (kShares) {
      // The other blocks' rows go first, since these wait for them.
#pragma unroll 1
      for (int block = gridDim.z - 1; block >= 0; --block) {
        reduce_rows((blockIdx.z - block) & (gridDim.z - 1), rows, d, n);
      }
    } else {
      reduce_rows(0, rows, d, n);
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

  // Row r of the output is reduced by block r % gridDim.z, a power of two, or all by the first.
  static __device__ int rows_of(int rank, int rows) {
    if constexpr (kShares) {
      const int others = gridDim.z - 1;
      return (rows - rank + others) >> __popc(others);
    } else {
      return rank == 0 ? rows : 0;
    }
  }

  __device__ float4* received(int sender) const {
    const int k_warps = blockDim.x / (32 * Config::kNWarps);
    return sums_ + (k_warps + sender) * kTile;
  }

  // Reduces the rows of block `owner`, or pushes this block's sums of them there. The blocks after
  // it are senders 0, 1, ..
  __device__ void reduce_rows(int owner, int rows, Element* d, int n) const {
    const int others = gridDim.z - 1, sender = (blockIdx.z - owner - 1) & others;
    for (int at = threadIdx.x; at < rows_of(owner, rows) * kChunks; at += blockDim.x) {
      const int row = owner + at / kChunks * (kShares ? static_cast<int>(gridDim.z) : 1);
      const int chunk = at % kChunks;
      const float4 own = total(row, chunk);
      if (sender < others) {
        cluster_.push(owner, received(sender) + at, own);
        continue;
      }
      if (others > 0) cluster_.wait();
      float4 sum = {};
#pragma unroll 1
      for (int block = 0; block <= others; ++block) {  // in the order of K, for every row
        add(sum, block == owner ? own : received((block - owner - 1) & others)[at]);
      }
      store_chunk(d, n, row, chunk, sum);
    }
  }

  // The sum over the warps. Unrolled, or loads wait for each other three or four times.
  __device__ float4 total(int row, int chunk) const {
    constexpr int kMost = Config::kMaxThreads / (32 * Config::kNWarps);
    const int k_warps = blockDim.x / (32 * Config::kNWarps);
    const float4* from = sums_ + place(row, chunk);
    float4 sum = *from;
    CUTLASS_PRAGMA_UNROLL
    for (int warp = 1; warp < kMost; ++warp) {
      if (warp < k_warps) add(sum, from[warp * kTile]);
    }
    return sum;
  }

  __device__ void store_chunk(Element* d, int n, int row, int chunk, const float4& sum) const {
    const int column = blockIdx.x * Config::kN + 4 * chunk;
    if (column >= n) return;  // n is a multiple of 8
    using Four = cutlass::AlignedArray<Element, 4, 8>;
    const auto rounded =
        cutlass::NumericArrayConverter<Element, float, 4>()(reinterpret_cast<const AwqQuad&>(sum));
    *reinterpret_cast<Four*>(d + static_cast<int64_t>(row) * n + column) =
        reinterpret_cast<const Four&>(rounded);
  }

  ClusterMbarrier cluster_;
  float4* sums_;  // of the warps that share out K, then of the other blocks: [kM][kChunks] each
};

}  // namespace mixed_gemm
