// Activations of values in registers, with one copy of their code: 125 instructions, which are most
// of a small kernel where each output has its own.
#pragma once
#include "cutlass/cutlass.h"
#include "epilogue/activation.h"

namespace mixed_gemm {

// Activates all of `values`, which stay in registers: no register can be indexed by a variable, so
// loops turn the array instead, and the code holds one copy of the activations.
template <int kCount>
__device__ void activate_all(Activation activation, float* values) {
  constexpr int kChunk = kCount < 8 ? kCount : 8;
#pragma unroll 1
  for (int chunk = 0; chunk < kCount / kChunk; ++chunk) {
    float turning[kChunk];
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kChunk; ++i) turning[i] = values[i];
    CUTLASS_PRAGMA_UNROLL
    for (int i = kChunk; i < kCount; ++i) values[i - kChunk] = values[i];
#pragma unroll 1
    for (int turn = 0; turn < kChunk; ++turn) {
      const float first = activate(activation, turning[0]);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i + 1 < kChunk; ++i) turning[i] = turning[i + 1];
      turning[kChunk - 1] = first;
    }
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kChunk; ++i) values[kCount - kChunk + i] = turning[i];
  }
}

}  // namespace mixed_gemm
