// A, prepared once per call: fp32, pre_scale applied, K padded with zeros, cut into blocks of rows
// with the row index innermost, so that a kernel broadcasts consecutive floats. Both the fused and
// the dense path read it.
#pragma once
#include "core/parallel.h"
#include "cpu/call_shape.h"

namespace mixed_gemm::cpu {

class ActivationPanel {
 public:
  struct Block {
    int64_t first;  // row of A
    int64_t real;   // rows that exist
    int rows;       // 1, 2, 4 or 8: what the kernel computes
    int choice;     // log2(rows)
    ActivationRows data;
  };

  // Rows [row_begin, row_end) of A.
  ActivationPanel(const CallShape& shape, int64_t row_begin, int64_t row_end,
                  const ParallelFor& parallel_for);

  int64_t num_blocks() const { return ceil_div(row_end_ - row_begin_, kMaxRows); }
  Block block(int64_t index) const;

 private:
  void fill_values(int64_t index, int64_t k_begin, int64_t k_end, const float* pre_scale);
  void fill_group_sums(int64_t index);

  const CallShape& shape_;
  int64_t row_begin_, row_end_, padded_rows_;
  AlignedBuffer values_, group_sums_;
};

}  // namespace mixed_gemm::cpu
