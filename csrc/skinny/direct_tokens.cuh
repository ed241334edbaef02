// Loads the activations of one warp straight from L1 into fragments, at the head of the iteration
// that needs them: the fewest instructions. But lane (g, q) reads 64 bytes of token g in a row, so
// that a load of a warp touches up to 16 lines; above 8 tokens token_stage.cuh is faster.
#pragma once
#include <cstdint>

#include "cutlass/cutlass.h"
#include "mainloop/predicated_load.cuh"

namespace mixed_gemm {

template <typename Config>
class DirectTokens {
  using Element = typename Config::Element;
  static constexpr int kStep = Config::kRow.warps * Config::kIterationK;

 public:
  struct Storage {};
  using Fragment = uint4[Config::kMTiles][Config::kVectors];

  // Takes the arguments of TokenStage.
  __device__ DirectTokens(Storage&, const Element* a, int64_t stride, int tokens, int k, int first)
      : stride_(stride), k_(k) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    const int token = Config::kQuarter ? g % kQuarterTokens : g;
    tokens_after_ = tokens - token;
    // Column g of the tokens belongs to the group of lane g / 2 of each quad; the others' k are 0.
    if (Config::kQuarter && g / kQuarterTokens != q) tokens_after_ = 0;
    asm volatile(""
                 : "+r"(tokens_after_));  // or it is made anew from the thread index, a slow read
    source_ = a + token * stride + first * Config::kIterationK + lane_k();
    if (Config::kHalf) source_ += q % 2 * 4;
  }

  __device__ void request() {}

  // Tokens that do not exist keep what the fragment holds; past the end of K are zeros.
  __device__ void take(Fragment& fragment, int iteration) {
    const int k_left = k_ - iteration * Config::kIterationK;
    if (k_left >= Config::kIterationK) {
      load(fragment, Config::kIterationK);
    } else {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Config::kMTiles; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (uint4& vector : fragment[i]) clear(vector);
      }
      load(fragment, k_left - lane_k());
    }
    source_ += kStep;
  }

  // The address that this lane reads first.
  __device__ const Element* source() const { return source_; }

 private:
  // Written in PTX, or the branch becomes a select for each register.
  static __device__ void clear(uint4& v) {
    asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w));
  }

  // The first k of this lane's first block in an iteration.
  static __device__ int lane_k() {
    const auto q = static_cast<int>(threadIdx.x % 4);
    return (Config::kHalf ? q / 2 : q) * Config::kBlockK;
  }

  // k_left: from this lane's first block on.
  __device__ void load(Fragment& fragment, int k_left) const {
    constexpr int kSecond = 2 * Config::kBlockK;  // half mode: from the first block to the other
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < Config::kMTiles; ++i) {
      const bool exists = Config::kTokensPerTile * i < tokens_after_;
      CUTLASS_PRAGMA_UNROLL
      for (int v = 0; v < Config::kVectors; ++v) {
        const Element* at = source_ + Config::kTokensPerTile * i * stride_ + 8 * v;
        uint4& vector = fragment[i][v];
        if constexpr (Config::kHalf) {
          load_if(exists && 8 * v < k_left, vector.x, vector.y, at);
          load_if(exists && 8 * v + kSecond < k_left, vector.z, vector.w, at + kSecond);
        } else {
          load_if(exists && 8 * v < k_left, vector, at);
        }
      }
    }
  }

  const Element* source_;
  int64_t stride_;
  int tokens_after_, k_;
};

}  // namespace mixed_gemm
