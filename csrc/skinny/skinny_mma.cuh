// mma.m16n8k16 as the skinny kernels use it: 16 columns of weights by 8 tokens, fp32 sums.
#pragma once
#include "cutlass/arch/mma_sm80.h"
#include "cutlass/array.h"

namespace mixed_gemm {

template <typename Element>
struct SkinnyMma {
  using Sums = cutlass::Array<float, 4>;

  static __device__ void multiply(Sums& sums, const uint32_t (&weights)[4], uint32_t tokens0,
                                  uint32_t tokens1) {
    using Mma = cutlass::arch::Mma<cutlass::gemm::GemmShape<16, 8, 16>, 32, Element,
                                   cutlass::layout::RowMajor, Element, cutlass::layout::ColumnMajor,
                                   float, cutlass::layout::RowMajor, cutlass::arch::OpMultiplyAdd>;
    const uint32_t tokens[2] = {tokens0, tokens1};
    Mma()(sums, reinterpret_cast<const cutlass::Array<Element, 8>&>(weights),
          reinterpret_cast<const cutlass::Array<Element, 4>&>(tokens), sums);
  }
};

}  // namespace mixed_gemm
