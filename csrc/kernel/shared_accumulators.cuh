// Accumulators of a tile on their way from one block to another. Both have the same threads, so
// each thread passes its registers to its twin: no exchange, every access coalesced.
#pragma once
#include "cutlass/array.h"

namespace mixed_gemm {

// Accumulators: cutlass::Array of float or int.
template <typename Accumulators, int kThreads>
struct SharedAccumulators {
  using Sum = typename Accumulators::Element;
  static_assert(sizeof(Sum) == sizeof(float), "passed as bits");
  static constexpr int kQuads = Accumulators::kElements / 4;

  // slot: the float4 of this thread; the next one is kThreads further. Around L1, which other SMs
  // do not see.
  static __device__ void store(float4* slot, const Accumulators& accumulators) {
    const auto* quads = reinterpret_cast<const float4*>(&accumulators);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kQuads; ++i) __stcg(slot + i * kThreads, quads[i]);
  }

  static __device__ void add(const float4* slot, Accumulators& accumulators) {
    constexpr int kBatch = kQuads < 8 ? kQuads : 8;  // loads in flight
    CUTLASS_PRAGMA_UNROLL
    for (int first = 0; first < kQuads; first += kBatch) {
      float4 more[kBatch];
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kBatch; ++i) more[i] = __ldcg(slot + (first + i) * kThreads);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 4 * kBatch; ++i) {
        accumulators[4 * first + i] += reinterpret_cast<const Sum*>(more)[i];
      }
    }
  }
};

}  // namespace mixed_gemm
