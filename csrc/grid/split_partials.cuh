// The partial sums that the slices of a parallel split left in memory, reduced by the second
// kernel.
#pragma once
#include "cutlass/array.h"

namespace mixed_gemm {

// sums += the sums of each slice, in order, which load(from, values) asks for. kBatch slices are
// requested together: one after the other, each waits for L2 (1.2 us for 8 of them).
template <int kBatch, typename Sum, typename Sums, typename Load>
__device__ void add_partials(const Sum* source, int64_t slice_stride, int slices, Sums& sums,
                             const Load& load) {
  for (int first = 0; first < slices; first += kBatch, source += kBatch * slice_stride) {
    Sums batch[kBatch];
    CUTLASS_PRAGMA_UNROLL
    for (int s = 0; s < kBatch; ++s) {
      batch[s].clear();
      if (first + s < slices) load(source + s * slice_stride, batch[s]);
    }
    CUTLASS_PRAGMA_UNROLL
    for (const Sums& more : batch) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < Sums::kElements; ++i) sums[i] += more[i];
    }
  }
}

// Neighbouring sums of one slice: all of them, or the first `existing` ones.
template <typename Sums, typename Sum>
__device__ void load_partials(const Sum* from, Sums& values) {
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < Sums::kElements / 4; ++i) {
    reinterpret_cast<float4*>(values.data())[i] = __ldcg(reinterpret_cast<const float4*>(from) + i);
  }
}
template <typename Sums, typename Sum>
__device__ void load_partials(const Sum* from, int existing, Sums& values) {
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < Sums::kElements; ++i) {
    if (i < existing) values[i] = __ldcg(from + i);
  }
}

}  // namespace mixed_gemm
