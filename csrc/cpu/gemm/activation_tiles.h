// A, prepared once per call for the tile kernels: as bf16, or as a sum of two or three bf16 numbers
// where it has more bits, in the order of TileKernels, pre_scale applied, K padded with zeros.
#pragma once
#include "core/parallel.h"
#include "cpu/gemm/activation_panel.h"

namespace mixed_gemm::cpu {

class ActivationTiles {
 public:
  // Prepares rows [row_begin, row_end) of A.
  ActivationTiles(const CallShape& shape, int64_t row_begin, int64_t row_end,
                  const ParallelFor& parallel_for);

  int64_t num_blocks() const { return ceil_div(row_end_ - row_begin_, block_rows()); }
  ActivationBlock block(int64_t index) const;

 private:
  int64_t block_rows() const { return tiles_.dense.block_rows; }
  int64_t words_per_row() const { return k_pad_ / 2 * parts_; }
  uint32_t* words(int64_t index) const;
  float* group_sums(int64_t index) const;
  void fill_rows(int64_t index, int64_t k_begin, int64_t k_end, const float* pre_scale);
  void fill_group_sums(int64_t index);

  const CallShape& shape_;
  const TileKernels& tiles_;
  int parts_;
  int64_t row_begin_, row_end_, k_pad_;
  AlignedBuffer words_, group_sums_;
};

}  // namespace mixed_gemm::cpu
