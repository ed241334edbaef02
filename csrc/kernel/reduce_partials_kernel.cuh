// Second kernel of parallel split-K: adds the slices' fp32 partial sums in order and finishes the
// output. With one slice it finishes what a dense GEMM left in fp32, with none it writes the
// outputs of an empty K.
#pragma once
#include "epilogue/finish_output.cuh"

namespace mixed_gemm {

template <typename Element>
__global__ void splitk_reduce_kernel(const OutputParams<Element> output, const float* partials,
                                     int64_t partial_stride, int slices, int64_t m) {
  const int64_t accesses_per_row = ceil_div(output.n, kOutputsPerAccess);
  const int64_t access = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (access >= m * accesses_per_row) return;
  const int64_t row = access / accesses_per_row;
  const int column = static_cast<int>(access % accesses_per_row) * kOutputsPerAccess;
  const float* source = partials + row * partial_stride + column;
  // One by one in a dense GEMM's output of odd n, and where a row ends: behind it nobody wrote.
  const bool vectors =
      partial_stride % kOutputsPerAccess == 0 && column + kOutputsPerAccess <= output.n;
  cutlass::Array<float, kOutputsPerAccess> sums;
  sums.clear();
  for (int slice = 0; slice < slices; ++slice, source += m * partial_stride) {
    cutlass::AlignedArray<float, 4> quads[2];
    if (vectors) {
      quads[0] = reinterpret_cast<const cutlass::AlignedArray<float, 4>*>(source)[0];
      quads[1] = reinterpret_cast<const cutlass::AlignedArray<float, 4>*>(source)[1];
    }
#pragma unroll
    for (int i = 0; i < kOutputsPerAccess; ++i) {
      sums[i] += vectors ? quads[i / 4][i % 4] : column + i < output.n ? source[i] : 0.f;
    }
  }
  finish_output(output, row, column, sums);
}

}  // namespace mixed_gemm
