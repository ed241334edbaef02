// The second kernel of parallel split-K reduces the slices' fp32 partial sums in order and runs the
// epilogue. With one slice it runs that on what a dense GEMM left in fp32, with none it writes the
// outputs of an empty K.
#pragma once
#include "epilogue/finish_output.cuh"
#include "grid/pdl.cuh"
#include "grid/split_partials.cuh"

namespace mixed_gemm {

template <typename Element, typename Factor>
struct Reduction {
  OutputParams<Element, Factor> output;
  const float* partials;
  int64_t partial_stride;
  int slices;
  int64_t m;
};

// A thread has kOutputsPerAccess columns of every gridDim.y-th row: no division says which.
template <typename Element, typename Factor>
__global__ void splitk_reduce_kernel(const __grid_constant__ Reduction<Element, Factor> p) {
  const int n = p.output.n;
  const int access = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (access >= static_cast<int>(ceil_div(n, kOutputsPerAccess))) return;
  const int column = access * kOutputsPerAccess;
  const int64_t slice_stride = p.m * p.partial_stride;
  // A dense GEMM's output of odd n is read value by value, and so is the end of every row.
  const bool one_by_one =
      p.partial_stride % kOutputsPerAccess != 0 || column + kOutputsPerAccess > n;
  pdl_wait();
  pdl_launch_dependents();
  const OutputColumns<Element, Factor> columns(p.output, column);
  const auto load = [](const float* from, auto& values) { load_partials(from, values); };
#pragma unroll 1
  for (int64_t row = blockIdx.y; row < p.m; row += gridDim.y) {
    const float* source = p.partials + row * p.partial_stride + column;
    cutlass::Array<float, kOutputsPerAccess> sums;
    sums.clear();
    if (one_by_one) {
      const int existing = n - column;
      add_partials<4>(source, slice_stride, p.slices, sums, [&](const float* from, auto& values) {
        load_partials(from, existing, values);
      });
    } else if (p.slices <= 2) {  // 0.15 us less than in a batch of 8
      add_partials<2>(source, slice_stride, p.slices, sums, load);
    } else if (p.slices <= 4) {
      add_partials<4>(source, slice_stride, p.slices, sums, load);
    } else {
      add_partials<8>(source, slice_stride, p.slices, sums, load);
    }
    finish_output(p.output, columns, row, column, sums);
  }
}

}  // namespace mixed_gemm
