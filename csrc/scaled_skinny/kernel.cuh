// The scaled GEMMs for few rows, where reading the weight is all that counts: its bytes go from
// device memory straight into mma fragments, as in skinny/. Weights are the 16-row operand of
// mma.m16n8k32, tokens the 8-column one.
//
// Lane (g = lane / 4, q = lane % 4) reads bytes 16 q to 16 q + 15 of 64 bytes of columns g and
// g + 8, and the same of token g. Which k an mma slot stands for is free as long as both operands
// agree: words 2 s and 2 s + 1 of a vector are the two halves of mma s. So nothing is moved between
// lanes, and nothing but the sums goes through shared memory.
//
// The warps of a block take turns along K, so that they read neighbouring bytes of a row together.
// A warp requests its next weights as soon as an mma has read the last ones.
#pragma once
#include "epilogue/scaled_epilogue.cuh"
#include "epilogue/store_value.cuh"
#include "grid/pdl.cuh"
#include "mainloop/predicated_load.cuh"
#include "mainloop/vector_word.cuh"
#include "scaled_skinny/config.cuh"

namespace mixed_gemm {

template <typename Config>
class ScaledSkinnyGemm {
  using Sum = typename Config::Sum;
  using Mma = typename Config::Mma;
  using Operand = typename Config::Operand;
  using Quad = cutlass::Array<Sum, 4>;  // elements 0, 1: column g; 2, 3: column g + 8
  static constexpr int kM = Config::kM, kN = Config::kN, kWarps = Config::kWarps;
  static constexpr int kMTiles = Config::kMTiles, kNTiles = Config::kNTiles;
  static constexpr int kChunks = kScaledSkinnyChunks;
  static constexpr int kStride = kN + 4;  // the lanes of a warp store to different banks

 public:
  struct Params {
    const uint8_t* a;  // [m, k], row i at i * lda
    int64_t lda;
    const uint8_t* b;  // [n, k], row j at j * ldb
    int64_t ldb;
    int m, n, k;
    ScaledEpilogueArgs epilogue;
    void* d;  // [m, n] of epilogue.out_type, contiguous
  };
  struct SharedStorage {
    Sum sums[kWarps][kM][kStride];
  };

  __device__ ScaledSkinnyGemm(const Params& params, SharedStorage& storage)
      : p_(params),
        storage_(storage),
        warp_(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)),
        g_(threadIdx.x % 32 / 4),
        q_(threadIdx.x % 4),
        column0_(blockIdx.x * kN),
        row0_(blockIdx.y * kM),
        k_left_(p_.k - warp_ * kScaledSkinnyK - q_ * kScaledSkinnyVector) {
    const int k = warp_ * kScaledSkinnyK + q_ * kScaledSkinnyVector;
    // Columns and tokens behind the last ones repeat these, and are never stored.
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < 2 * kNTiles; ++j) {
      columns_[j] = p_.b + min(column0_ + 8 * j + g_, p_.n - 1) * p_.ldb + k;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMTiles; ++i) {
      tokens_[i] = p_.a + min(row0_ + 8 * i + g_, p_.m - 1) * p_.lda + k;
    }
  }

  __device__ void run() {
    pdl_wait();
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (Quad& sums : sums_[j]) sums.clear();
      clear(weights_[j]);
      load_weights<true>(j);
    }
    load_tokens();
    pdl_launch_dependents();
    const int end = (p_.k + kScaledSkinnyK - 1) / kScaledSkinnyK;
    for (int at = warp_; at < end; at += kWarps) {
      k_left_ -= kWarps * kScaledSkinnyK;
      CUTLASS_PRAGMA_UNROLL
      for (const uint8_t*& column : columns_) column += kWarps * kScaledSkinnyK;
      CUTLASS_PRAGMA_UNROLL
      for (const uint8_t*& token : tokens_) token += kWarps * kScaledSkinnyK;
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kNTiles; ++j) {
        multiply(j);
        load_weights<false>(j);
      }
      load_tokens();
    }
    reduce_and_store();
  }

 private:
  using Vectors = uint4[2][kChunks];  // of columns g and g + 8

  static __device__ void clear(Vectors& vectors) {
    CUTLASS_PRAGMA_UNROLL
    for (auto& of_column : vectors) {
      CUTLASS_PRAGMA_UNROLL
      for (uint4& v : of_column) v = uint4{};
    }
  }

  // Past the end of K weights stay as they were and meet tokens that are 0. (A NaN among them is of
  // the same column, whose result it has made NaN already.)
  template <bool kFirst>
  __device__ void load_weights(int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      CUTLASS_PRAGMA_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        load_once_if<kFirst>(c * kScaledSkinnyChunk < k_left_, weights_[j][h][c],
                             columns_[2 * j + h] + c * kScaledSkinnyChunk);
      }
    }
  }

  __device__ void load_tokens() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMTiles; ++i) {
      CUTLASS_PRAGMA_UNROLL
      for (int c = 0; c < kChunks; ++c) {
        vectors_[i][c] = uint4{};
        load_if(c * kScaledSkinnyChunk < k_left_, vectors_[i][c],
                tokens_[i] + c * kScaledSkinnyChunk);
      }
    }
  }

  __device__ void multiply(int j) {
    CUTLASS_PRAGMA_UNROLL
    for (int step = 0; step < 2 * kChunks; ++step) {
      const int c = step / 2, s = step % 2;
      uint32_t weights[4];
      CUTLASS_PRAGMA_UNROLL
      for (int r = 0; r < 4; ++r) weights[r] = word_of(weights_[j][r % 2][c], 2 * s + r / 2);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        const uint32_t tokens[2] = {word_of(vectors_[i][c], 2 * s),
                                    word_of(vectors_[i][c], 2 * s + 1)};
        Mma()(sums_[j][i], reinterpret_cast<const cutlass::Array<Operand, 16>&>(weights),
              reinterpret_cast<const cutlass::Array<Operand, 8>&>(tokens), sums_[j][i]);
      }
    }
  }

  __device__ void reduce_and_store() {
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kNTiles; ++j) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kMTiles; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int e = 0; e < 4; ++e) {
          storage_.sums[warp_][8 * i + 2 * q_ + e % 2][16 * j + 8 * (e / 2) + g_] = sums_[j][i][e];
        }
      }
    }
    __syncthreads();
    with_epilogue<Sum>(p_.epilogue, [&](const auto& tree) { store(tree); });
  }

  // Reduces the sums of the warps in their order.
  template <typename Tree>
  __device__ void store(const Tree& tree) const {
    const int rows = min(p_.m - row0_, kM);
    for (int at = threadIdx.x; at < rows * kN; at += Config::kThreads) {
      const int row = at / kN, column = at % kN;
      if (column0_ + column >= p_.n) continue;
      Sum total = 0;
      CUTLASS_PRAGMA_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) total += storage_.sums[warp][row][column];
      const float value = tree(total, tree.row(row0_ + row), tree.column(column0_ + column));
      store_value(p_.d, p_.epilogue.out_type,
                  static_cast<int64_t>(row0_ + row) * p_.n + column0_ + column, value);
    }
  }

  const Params& p_;
  SharedStorage& storage_;
  int warp_, g_, q_, column0_, row0_;
  int k_left_;  // from this lane's vector on, where it reads next
  const uint8_t* columns_[2 * kNTiles];
  const uint8_t* tokens_[kMTiles];
  Vectors weights_[kNTiles];
  uint4 vectors_[kMTiles][kChunks];
  Quad sums_[kNTiles][kMTiles];
};

template <typename Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    scaled_skinny_kernel(const __grid_constant__ typename ScaledSkinnyGemm<Config>::Params params) {
  __shared__ typename ScaledSkinnyGemm<Config>::SharedStorage storage;
  ScaledSkinnyGemm<Config>(params, storage).run();
}

}  // namespace mixed_gemm
