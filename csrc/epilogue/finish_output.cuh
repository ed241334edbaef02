// The last arithmetic of every CUDA GEMM, on 8 neighbouring outputs: fp32 sum -> channel scale ->
// bias -> activation -> one rounding -> store. The multistage epilogue and the split-K reduction
// both end here.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "epilogue/activation.h"

namespace mixed_gemm {

constexpr int kOutputsPerAccess = 8;  // 16 bytes of 16-bit outputs

template <typename Element>
struct OutputParams {
  const Element* channel_scale;  // [n] or null
  const Element* bias;           // [n] or null
  Element* d;                    // [m, n], contiguous
  int n;
  Activation activation;
};

// Values of 8 columns: `missing` where there are none, or past n.
template <typename Element>
__device__ cutlass::Array<Element, kOutputsPerAccess> column_values(const Element* values,
                                                                    float missing, int column,
                                                                    int n) {
  cutlass::Array<Element, kOutputsPerAccess> result;
  result.fill(Element(missing));
  if (values != nullptr) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) {
      if (column + i < n) result[i] = values[column + i];
    }
  }
  return result;
}

// Scale and bias are read where they are used: kept over the rows of a tile, they cost 16 registers
// that the large tiles do not have.
template <typename Element>
__device__ void finish_output(const OutputParams<Element>& p, int64_t row, int column,
                              const cutlass::Array<float, kOutputsPerAccess>& sums) {
  const auto scale = column_values(p.channel_scale, 1.f, column, p.n);
  const auto bias = column_values(p.bias, 0.f, column, p.n);
  cutlass::Array<float, kOutputsPerAccess> results;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kOutputsPerAccess; ++i)
    results[i] = fmaf(sums[i], float(scale[i]), float(bias[i]));
  if (p.activation != Activation::kIdentity) {
    // A loop that turns the array: one copy of the activations in the code, and no register is
    // indexed by a variable.
#pragma unroll 1
    for (int turn = 0; turn < kOutputsPerAccess; ++turn) {
      const float first = activate(p.activation, results[0]);
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i + 1 < kOutputsPerAccess; ++i) results[i] = results[i + 1];
      results[kOutputsPerAccess - 1] = first;
    }
  }
  const auto rounded = cutlass::NumericArrayConverter<Element, float, kOutputsPerAccess>()(results);
  Element* d = p.d + row * p.n + column;
  if (p.n % kOutputsPerAccess == 0) {  // then every row starts on 16 bytes
    *reinterpret_cast<cutlass::AlignedArray<Element, kOutputsPerAccess>*>(d) =
        reinterpret_cast<const cutlass::AlignedArray<Element, kOutputsPerAccess>&>(rounded);
    return;
  }
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kOutputsPerAccess; ++i) {
    if (column + i < p.n) d[i] = rounded[i];
  }
}

}  // namespace mixed_gemm
