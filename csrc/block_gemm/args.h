// The arguments of the two launches of block_quant_gemm: plain data, no CUTLASS.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "block_gemm/config.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

// K as the kernels see it: blocks of `padded`, a multiple of kBlockStep unless there is only one
// block. Padding is 0 in both operands.
struct BlockForm {
  int64_t blocks = 0, padded = 0;
  int64_t k = 0;  // of the padded operands; the last block is not padded

  static BlockForm of(const BlockGemmProblem& p) {
    BlockForm form;
    form.blocks = p.blocks();
    form.padded = form.blocks > 1 ? round_up(p.block_size, kBlockStep) : p.k;
    if (form.blocks > 0) form.k = p.k + (form.blocks - 1) * (form.padded - p.block_size);
    return form;
  }
  bool is_coarse() const { return blocks <= 1 || padded % kScaledTileK == 0; }
  // An index into kBlockModes. sums_given: whether the sums of the columns of B are.
  int mode(bool sums_given) const {
    if (!is_coarse()) return kFineBlocks;
    return sums_given ? kSummedBlocks : kCoarseBlocks;
  }
  // Elements of K that one row of scales serves.
  int64_t scale_step_k() const { return is_coarse() ? kScaledTileK : kBlockStep; }
  int64_t lines() const { return ceil_div(k, kScaledTileK); }
  // K is shared out in parts of this many lines: the least that end with a block.
  int64_t split_lines() const {
    if (blocks <= 1) return std::max<int64_t>(lines(), 1);
    return padded / std::gcd<int64_t>(padded, kScaledTileK);
  }
  int64_t split_parts() const { return ceil_div(lines(), split_lines()); }
};

// The parameters of a block of a row of A, and of a block of a column of B.
struct RowScale {
  float scale, offset;
  float sum;  // of the block's dequantized values
  float unused;
};
struct ColumnScale {
  float scale, offset;
};
// The same with the product of a given sum. It has 16 bytes, since cp.async knows no 12.
struct alignas(16) SummedColumnScale {
  float scale, offset;
  float of_block;  // scale * sum
  float unused;
};

// The operands as the first launch makes them and the second one multiplies them. Rows of a and b
// start on 16 bytes.
struct BlockOperands {
  BlockForm form;
  int8_t* a = nullptr;  // [m, form.k] rounded, rows of a_stride bytes
  int64_t a_stride = 0;
  const int8_t* b = nullptr;  // [n, form.k], rows of b_stride bytes: the user's, or the copy
  int64_t b_stride = 0;
  int8_t* b_copy = nullptr;  // null: the user's is read as it is
  RowScale* rows = nullptr;  // [blocks, m]
  // [blocks, n]; the mode reads one of the two. Both are null where none is wanted.
  ColumnScale* columns = nullptr;
  SummedColumnScale* summed_columns = nullptr;

  bool wants_columns() const { return columns != nullptr || summed_columns != nullptr; }
};

// The first launch rounds A, brings the scales of B into fp32, zeroes the semaphores of stream-K,
// and copies B where cp.async cannot read it as it is.
struct BlockPrepareArgs {
  BlockGemmProblem problem;
  BlockOperands operands;
  int* flags = nullptr;  // `flag_count` ints to zero
  int flag_count = 0;
};

}  // namespace mixed_gemm
