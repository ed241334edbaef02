// Adds up the rows of every token as problem/moe.h says: a thread has some columns of a token, and
// the rows of a few choices are under way at once.
#pragma once
#include "grid/pdl.cuh"
#include "problem/moe.h"
#include "transform/element_vector.cuh"

namespace mixed_gemm {

struct CombineRowsParams {
  MoeCombineProblem problem;
  bool aligned_d;  // all rows of d lie on 16 bytes
};

// Blocks of x share a token, tokens are blockIdx.y + i * gridDim.y.
// kAligned: whether rows lie on 16 bytes and are whole vectors.
template <typename Element, typename Weight, bool kAligned>
__global__ void combine_rows_kernel(const CombineRowsParams params) {
  constexpr int kAtOnce = kAligned ? 8 : 2;
  const MoeCombineProblem& p = params.problem;
  pdl_wait();
  pdl_launch_dependents();
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kElementVector;
  if (at >= p.k) return;
  const int64_t left = p.k - at;
  const auto* rows = static_cast<const Element*>(p.rows) + at;
  const auto* weights = static_cast<const Weight*>(p.weights);
  for (int64_t token = blockIdx.y; token < p.tokens; token += gridDim.y) {
    float sum[kElementVector] = {};
    const int64_t end = (token + 1) * p.choices;
    // Without branches, which loads would wait at: a choice without a row reads the first one.
    for (int64_t first = token * p.choices; first < end && p.row_count > 0; first += kAtOnce) {
      float loaded[kAtOnce][kElementVector], weight[kAtOnce];
      int32_t position[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t at = min(first + j, end - 1);
        const int32_t given = p.positions[at];
        position[j] = first + j < end && p.has_row(given) ? given : -1;
        weight[j] = static_cast<float>(weights[at]);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const auto* row = rows + max(position[j], 0) * p.row_stride;
        load_elements<Element, kAligned>(row, left, loaded[j]);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < kElementVector; ++i) {
          const float more = fmaf(loaded[j][i], weight[j], sum[i]);
          sum[i] = position[j] < 0 ? sum[i] : more;
        }
      }
    }
    store_elements(sum, static_cast<Element*>(p.d) + token * p.k + at, left, params.aligned_d);
  }
}

}  // namespace mixed_gemm
