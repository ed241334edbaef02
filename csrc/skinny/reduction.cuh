// How a skinny block ends: its warps reduce their sums in shared memory, in order. The other blocks
// of a cluster push theirs to the first one, which reduces them in the order of K.
//
// With 8 outputs a thread instead of one the end of every block cost 4 of 76 us at 57344 x 8192.
#pragma once
#include "cutlass/array.h"
#include "grid/cluster_mbarrier.cuh"
#include "skinny/config.cuh"
#include "skinny/finish_few.cuh"

namespace mixed_gemm {

template <typename Config>
class SkinnyReduction {
  using Element = typename Config::Element;
  static constexpr int kM = Config::kM, kN = Config::kN, kWarps = Config::kRow.warps;
  static constexpr int kStride = kN + 4;  // the lanes of a warp store to different banks
  // Wide blocks have several outputs a thread, and read them at once.
  static constexpr bool kWide = Config::kNTiles == 4;
  using Outputs = std::conditional_t<kWide, float4, float>;
  static constexpr int kOutputs = sizeof(Outputs) / sizeof(float), kChunks = kN / kOutputs;

 public:
  using WarpSums = float[kM][kStride];
  struct Storage {
    alignas(16) uint8_t barrier[ClusterMbarrier::kBytes];
    Outputs received[kMaxSkinnyCluster - 1][kM * kChunks];  // from the second block on
  };

  __device__ explicit SkinnyReduction(Storage& storage)
      : storage_(storage), cluster_(storage.barrier) {}

  // Called long before store(), by all threads. rows: of the output, from the block's first on.
  __device__ void start(int rows) {
    if (!Config::kSplits || gridDim.z == 1) return;
    cluster_.open((gridDim.z - 1) * min(rows, kM) * kN * static_cast<int>(sizeof(float)));
  }

  // warps: their sums. factor: of all outputs.
  template <typename WarpStorage>
  __device__ void store(const WarpStorage (&warps)[kWarps], float factor, int rows, int row0,
                        int column0, const OutputParams<Element, typename Config::Factor>& output) {
    const bool splits = Config::kSplits && gridDim.z > 1;
    if (splits) cluster_.wait_for_others();
    __syncthreads();
    if (splits || (Config::kSplits && !Config::kLarge)) {
      store_outputs<true>(warps, factor, min(rows, kM), row0, column0, output);
    } else {
      store_outputs<false>(warps, factor, min(rows, kM), row0, column0, output);
    }
  }

 private:
  // Large blocks have code without clusters as well: 2 %. (For 8 tokens by 32 columns in bf16 that
  // was 1 to 2 % slower.)
  template <bool kSplits, typename WarpStorage>
  __device__ void store_outputs(const WarpStorage (&warps)[kWarps], float factor, int rows,
                                int row0, int column0,
                                const OutputParams<Element, typename Config::Factor>& output) {
    for (int at = threadIdx.x; at < rows * kChunks; at += Config::kThreads) {
      const int row = at / kChunks, column = at % kChunks * kOutputs;
      Outputs total = {};
      CUTLASS_PRAGMA_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) {
        add(total, reinterpret_cast<const Outputs&>(warps[warp].sums[row][column]));
      }
      if constexpr (kSplits) {
        const int others = gridDim.z - 1, rank = blockIdx.z;
        if (rank > 0) {
          cluster_.push(0, &storage_.received[rank - 1][at], total);
          continue;
        }
        if (others > 0) cluster_.wait();
#pragma unroll 1
        for (int i = 0; i < others; ++i) add(total, storage_.received[i][at]);
      }
      float sums[kOutputs];
      CUTLASS_PRAGMA_UNROLL
      for (int e = 0; e < kOutputs; ++e) sums[e] = element(total, e) * factor;
      finish_few(output, row0 + row, column0 + column, sums);
    }
  }

  static __device__ void add(float& sum, float more) { sum += more; }
  static __device__ void add(float4& sum, const float4& more) {
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  static __device__ float element(float v, int) { return v; }
  static __device__ float element(const float4& v, int e) {
    return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w;
  }

  Storage& storage_;
  ClusterMbarrier cluster_;
};

}  // namespace mixed_gemm
