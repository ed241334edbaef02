// A, prepared once per call for the vector kernels: in their words (fp32, or pairs of bf16),
// pre_scale applied, K padded with zeros, cut into blocks of rows with the row index innermost, so
// that a kernel broadcasts consecutive words. Both the fused and the dense path read it.
#pragma once
#include "core/parallel.h"
#include "cpu/call_shape.h"

namespace mixed_gemm::cpu {

// A block of rows of A that a kernel takes together.
struct ActivationBlock {
  int64_t first;  // row of A
  int64_t real;   // rows that exist
  int rows;       // what the kernel computes
  int choice;     // of the kernel, by `rows`
  const uint32_t* words;
  const float* group_sums;
  int parts;  // as ActivationRows has it

  // The rows from element k of K on, a multiple of 64.
  ActivationRows from(int64_t k, int depth) const {
    return {words + k / depth * parts * rows, group_sums, parts, static_cast<int>(real)};
  }
};

class ActivationPanel {
 public:
  // Prepares rows [row_begin, row_end) of A.
  ActivationPanel(const CallShape& shape, int64_t row_begin, int64_t row_end,
                  const ParallelFor& parallel_for);

  int64_t num_blocks() const { return full_blocks_ + ceil_div(rest_, rest_step_); }
  ActivationBlock block(int64_t index) const;

 private:
  // The first row of a block, counted from row_begin_; for the one behind the last, all rows.
  int64_t first_row(int64_t index) const;
  int64_t words_per_row() const { return shape_.tiles * kTileK / shape_.depth(); }
  uint32_t* words(int64_t index) const;
  float* group_sums(int64_t index) const;
  void fill_words(int64_t index, int64_t k_begin, int64_t k_end, const float* pre_scale);
  void fill_group_sums(int64_t index);

  const CallShape& shape_;
  int64_t row_begin_, block_rows_, full_blocks_;
  int64_t rest_, rest_step_;  // rows behind the full blocks, and of one of their blocks
  int64_t padded_rows_;
  AlignedBuffer words_, group_sums_;
};

}  // namespace mixed_gemm::cpu
