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

// The channel scale and bias of 8 columns; columns past n read as scale 1, bias 0.
template <typename Element>
struct OutputColumns {
  cutlass::Array<Element, kOutputsPerAccess> scale, bias;

  __device__ OutputColumns(const OutputParams<Element>& p, int column) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) {
      const bool inside = column + i < p.n;
      scale[i] = inside && p.channel_scale ? p.channel_scale[column + i] : Element(1.f);
      bias[i] = inside && p.bias ? p.bias[column + i] : Element(0.f);
    }
  }
};

template <typename Element>
__device__ void finish_output(const OutputParams<Element>& p, const OutputColumns<Element>& columns,
                              int64_t row, int column,
                              const cutlass::Array<float, kOutputsPerAccess>& sums) {
  cutlass::Array<float, kOutputsPerAccess> results;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kOutputsPerAccess; ++i)
    results[i] = fmaf(sums[i], float(columns.scale[i]), float(columns.bias[i]));
  if (p.activation != Activation::kIdentity) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) results[i] = activate(p.activation, results[i]);
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
