// Activations of one warp and iteration, staged through shared memory while the warp multiplies the
// iteration before: for more than 8 tokens, where straight loads (direct_tokens.cuh) are the limit.
// 28672 x 4096 at M = 16 took 30.4 us in place of 37.6, but 57344 x 8192 at M = 1 72, not 66.
//
// Lane (g, q) needs vectors 0 .. kVectors - 1 of block q of tokens g, g + 8. A copy takes whole
// lines of a few tokens; vector v of block q of token t lies at slot 4 (v ^ t % 2) + q of its row,
// so that the 8 lanes of a quarter-warp read 8 different groups of banks.
#pragma once
#include <cstdint>

#include "cutlass/arch/memory.h"
#include "cutlass/cutlass.h"
#include "mainloop/predicated_load.cuh"

namespace mixed_gemm {

template <typename Config>
class TokenStage {
  using Element = typename Config::Element;
  static constexpr int kVectors = Config::kVectors, kMTiles = Config::kMTiles;
  static constexpr int kChunks = 4 * kVectors;         // 16-byte vectors of a token
  static constexpr int kTokensPerCopy = 32 / kChunks;  // by one instruction of a warp
  static constexpr int kCopies = Config::kM / kTokensPerCopy;
  static constexpr int kStep = Config::kRow.warps * Config::kIterationK;
  static_assert(kTokensPerCopy % 2 == 0, "a lane's tokens are all even or all odd");

 public:
  using Storage = uint4[Config::kM][kChunks];
  using Fragment = uint4[kMTiles][kVectors];

  // tokens: how many of them exist, from `a` on. first: of the warp's iterations.
  __device__ TokenStage(Storage& storage, const Element* a, int64_t stride, int tokens, int k,
                        int first)
      : copy_stride_(kTokensPerCopy * stride), tokens_(tokens) {
    const int lane = threadIdx.x % 32, token = lane / kChunks, chunk = lane % kChunks;
    const int k0 = first * Config::kIterationK + 8 * chunk;
    source_ = a + token * stride + k0;
    k_left_ = k - k0;
    target_ = cutlass::arch::cutlass_get_smem_pointer(
        &storage[token][slot(chunk / kVectors, chunk % kVectors, token)]);
    const int g = lane / 4, q = lane % 4;
    CUTLASS_PRAGMA_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const int block = Config::kHalf ? q / 2 : q;
      from_[odd] = cutlass::arch::cutlass_get_smem_pointer(&storage[g][slot(block, odd, g)]);
      if (Config::kHalf) from_[odd] += q % 2 * 8;
    }
  }

  // Requests the next iteration's. Vectors past the end of K become zeros. Call it when all lanes
  // have read the one before.
  __device__ void request() {
    const int bytes = k_left_ > 0 ? 16 : 0, token = threadIdx.x % 32 / kChunks;
    const Element* source = source_;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      if (i == 1 && tokens_ <= kTokensPerCopy) break;
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %3, 0;"
          " @p cp.async.ca.shared.global [%0], [%1], 16, %2; }" ::"r"(target_ + i * kTokensPerCopy *
                                                                                    kChunks * 16),
          "l"(source), "r"(bytes), "r"(static_cast<int>(i * kTokensPerCopy + token < tokens_))
          : "memory");
      source += copy_stride_;
    }
    source_ += kStep;
    k_left_ -= kStep;
  }

  // Tokens that do not exist keep what the fragment holds.
  __device__ void take(Fragment& fragment, int /*iteration*/) const {
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kMTiles; ++i) {
      const bool exists = 8 * i + static_cast<int>(threadIdx.x % 32 / 4) < tokens_;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const unsigned from = from_[v % 2] + (8 * i * kChunks + v / 2 * 8) * 16;
        uint4& vector = fragment[i][v];
        if constexpr (Config::kHalf) {
          load_shared_if(exists, vector.x, vector.y, from);
          load_shared_if(exists, vector.z, vector.w, from + 32);
        } else {
          load_shared_if(exists, vector, from);
        }
      }
    }
    __syncwarp();
  }

  // The address that this lane reads first.
  __device__ const Element* source() const { return source_; }

 private:
  static __device__ int slot(int block, int vector, int token) {
    return 4 * (vector ^ token % 2) + block;
  }

  const Element* source_;
  int64_t copy_stride_;
  int tokens_, k_left_;
  unsigned target_, from_[2];
};

}  // namespace mixed_gemm
