// How an AWQ block ends: its warps meet in shared memory and are added in order. Then each block of
// a cluster pushes its sums to the one that owns the columns, which adds them in the order of K.
//
// Four columns at a time, a chunk: with an output a thread and a store of 4 bytes for every sum,
// the end of a kernel for 32 tokens took 2.7 us at 4096 columns.
#pragma once
#include <cooperative_groups.h>

#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"

namespace mixed_gemm {

using AwqQuad = cutlass::Array<float, 4>;

template <typename Config>
class AwqReduction {
  using Element = typename Config::Element;
  static constexpr int kM = Config::kM, kWords = Config::kWords;
  static constexpr int kChunks = Config::kN / 4;  // of a row

 public:
  using Accumulators = AwqQuad[4 * kWords][Config::kMTiles];

  static constexpr int smem_bytes(int warps, int split) {
    return (warps / Config::kNWarps + (split > 1)) * kM * kChunks * sizeof(float4);
  }

  __device__ explicit AwqReduction(void* storage) : sums_(static_cast<float4*>(storage)) {}

  // Long before store(): no block is written to before it has started.
  __device__ void start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (gridDim.z > 1) cooperative_groups::this_cluster().barrier_arrive();
#endif
  }

  // d: the first output of the block's rows, of which there are `rows` more.
  __device__ void store(const Accumulators& accumulators, int rows, Element* d, int n) {
    rows = min(rows, kM);
    meet(accumulators, rows);
    const int k_warps = blockDim.x / (32 * Config::kNWarps);
    if (gridDim.z > 1) {
      add_cluster(rows, k_warps, d, n);
      return;
    }
    for (int at = threadIdx.x; at < rows * kChunks; at += blockDim.x) {
      finish(d, n, at / kChunks, at % kChunks, total(at / kChunks, at % kChunks, k_warps));
    }
  }

 private:
  // The 8 lanes of a quarter-warp (two g, all q) store to different groups of banks.
  static __device__ int place(int row, int chunk) {
    return row * kChunks + (chunk ^ (row / 2 % 2 | row / 4 % 2 * 4));
  }

  __device__ void meet(const Accumulators& accumulators, int rows) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    float4* mine = sums_ + warp / Config::kNWarps * kM * kChunks;
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
    float4 sum = sums_[place(row, chunk)];
#pragma unroll 4
    for (int warp = 1; warp < k_warps; ++warp) {
      add(sum, sums_[warp * kM * kChunks + place(row, chunk)]);
    }
    return sum;
  }

  __device__ void add_cluster(int rows, int k_warps, Element* d, int n) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const auto cluster = cooperative_groups::this_cluster();
    const int split = gridDim.z, rank = blockIdx.z, width = kChunks / split;  // of a block's share
    float4* received = sums_ + k_warps * kM * kChunks;                        // [split][kM][width]
    cluster.barrier_wait();
    for (int at = threadIdx.x; at < rows * kChunks; at += blockDim.x) {
      const int row = at / kChunks, chunk = at % kChunks;
      float4* to = received + (rank * kM + row) * width + chunk % width;
      *cluster.map_shared_rank(to, chunk / width) = total(row, chunk, k_warps);
    }
    cluster.sync();
    for (int at = threadIdx.x; at < rows * width; at += blockDim.x) {
      const int row = at / width, chunk = at % width;
      float4 sum = received[row * width + chunk];
      for (int from = 1; from < split; ++from) {
        add(sum, received[(from * kM + row) * width + chunk]);
      }
      finish(d, n, row, rank * width + chunk, sum);
    }
#endif
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

  float4* sums_;  // [warps that share out K][kM][kChunks], then what the cluster sends
};

}  // namespace mixed_gemm
