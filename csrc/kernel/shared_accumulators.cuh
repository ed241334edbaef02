// fp32 accumulators of a tile on their way from one block to another. Both have the same threads,
// so each thread passes its registers to its twin: no exchange, every access coalesced.
#pragma once
#include "cutlass/array.h"
#include "mainloop/gemm_config.cuh"

namespace mixed_gemm {

template <typename Config>
struct SharedAccumulators {
  using Accumulators = cutlass::Array<float, Config::kAccumulators>;
  static constexpr int kQuads = Config::kAccumulators / 4;

  // slot: the float4 of this thread; the next one is kThreads further. Around L1, which other SMs
  // do not see.
  static __device__ void store(float4* slot, const Accumulators& accumulators) {
    const auto* quads = reinterpret_cast<const float4*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kQuads; ++i) __stcg(slot + i * Config::kThreads, quads[i]);
  }

  static __device__ void add(const float4* slot, Accumulators& accumulators) {
    constexpr int kBatch = kQuads < 8 ? kQuads : 8;  // loads in flight
    CUTLASS_PRAGMA_UNROLL
    for (int first = 0; first < kQuads; first += kBatch) {
      float4 more[kBatch];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBatch; ++i) more[i] = __ldcg(slot + (first + i) * Config::kThreads);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        accumulators[4 * (first + i)] += more[i].x;
        accumulators[4 * (first + i) + 1] += more[i].y;
        accumulators[4 * (first + i) + 2] += more[i].z;
        accumulators[4 * (first + i) + 3] += more[i].w;
      }
    }
  }
};

}  // namespace mixed_gemm
