// The last arithmetic of every CUDA GEMM, on 8 neighbouring outputs: fp32 sum -> channel scale ->
// bias -> activation -> one rounding -> store. The second kernel of a parallel split ends here;
// finish_few.cuh and tile_output.cuh do the same on a few outputs and on a tile.
#pragma once
#include "cutlass/array.h"
#include "cutlass/numeric_conversion.h"
#include "epilogue/activate_all.cuh"

namespace mixed_gemm {

constexpr int kOutputsPerAccess = 8;  // 16 bytes of 16-bit outputs

// Factor: the type of the number that multiplies the reduced sums of a column.
template <typename Element, typename Factor>
struct OutputParams {
  const Factor* channel_scale;  // [n] or null
  const Element* bias;          // [n] or null
  Element* d;                   // [m, n], contiguous
  int n;
  Activation activation;

  // The same for the columns of an expert, whose values lie behind those of the expert before it.
  __device__ OutputParams of_expert(int expert) const {
    OutputParams own = *this;
    const int64_t before = int64_t{expert} * n;
    if (channel_scale != nullptr) own.channel_scale += before;
    if (bias != nullptr) own.bias += before;
    return own;
  }
};

// The values of 8 columns: `missing` where there are none, or past n.
template <typename Element>
__device__ cutlass::Array<Element, kOutputsPerAccess> column_values(const Element* values,
                                                                    float missing, int column,
                                                                    int n) {
  using Values = cutlass::AlignedArray<Element, kOutputsPerAccess>;
  Values result;
  result.fill(Element(missing));
  if (values == nullptr) return result;
  values += column;
  if (column + kOutputsPerAccess <= n &&
      reinterpret_cast<uintptr_t>(values) % sizeof(Values) == 0) {
    result = *reinterpret_cast<const Values*>(values);
  } else {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kOutputsPerAccess; ++i) {
      if (column + i < n) result[i] = values[i];
    }
  }
  return result;
}

// Scale and bias of 8 columns.
template <typename Element, typename Factor>
struct OutputColumns {
  cutlass::Array<Factor, kOutputsPerAccess> scale;
  cutlass::Array<Element, kOutputsPerAccess> bias;
  __device__ OutputColumns(const OutputParams<Element, Factor>& p, int column)
      : scale(column_values(p.channel_scale, 1.f, column, p.n)),
        bias(column_values(p.bias, 0.f, column, p.n)) {}
};

template <typename Element, typename Factor>
__device__ void finish_output(const OutputParams<Element, Factor>& p,
                              const OutputColumns<Element, Factor>& columns, int64_t row,
                              int column, const cutlass::Array<float, kOutputsPerAccess>& sums) {
  cutlass::Array<float, kOutputsPerAccess> results;
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kOutputsPerAccess; ++i)
    results[i] = fmaf(sums[i], float(columns.scale[i]), float(columns.bias[i]));
  if (p.activation != Activation::kIdentity) {
    activate_all<kOutputsPerAccess>(p.activation, results.data());
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
