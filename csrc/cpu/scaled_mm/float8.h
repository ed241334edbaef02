// The two ways of an fp8 product on the CPU share how K is cut, and where scales lie.
#pragma once
#include <algorithm>

#include "core/parallel.h"
#include "cpu/float8_kernels.h"
#include "cpu/scaled_mm/epilogue_cpu.h"
#include "problem/scaled_mm.h"

namespace mixed_gemm::cpu {

struct Float8Call {
  // k_step: segments are filled up to multiples of it. piece: of K, where there are no blocks.
  Float8Call(const ScaledMmProblem& problem, int64_t k_step, int64_t piece) : p(problem) {
    segments.length = p.block_k > 0 ? std::min(p.block_k, std::max<int64_t>(p.k, 1)) : piece;
    segments.padded = round_up(segments.length, k_step);
    count = ceil_div(p.k, segments.length);
  }
  bool scaled() const { return p.block_k > 0; }
  int64_t length_of(int64_t segment) const {
    return std::min(segments.length, p.k - segment * segments.length);
  }
  // The scales of all segments of a column; behind the last column those of the last.
  const float* scale_b_of(int64_t column) const {
    const int64_t row = std::min(column, p.n - 1) / p.block_n;
    return p.scale_b + row * p.scale_b_stride;
  }

  const ScaledMmProblem& p;
  Float8Segments segments;
  int64_t count;  // of segments
};

// Multiplies on tile registers.
void float8_in_tiles(const Float8TileKernels& kernels, const ScaledMmProblem& problem,
                     const ScaledEpilogueCpu& epilogue, const ParallelFor& parallel_for);

}  // namespace mixed_gemm::cpu
