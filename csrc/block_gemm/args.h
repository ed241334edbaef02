// What dispatch/ hands to the two launches of block_quant_gemm: plain data, no CUTLASS.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "block_gemm/config.h"
#include "core/split.h"
#include "problem/block_gemm.h"

namespace mixed_gemm {

// How the kernels see K: blocks of `padded`, a multiple of kBlockStep unless there is only one
// block. What is padded is 0 in both operands.
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
  // Index into kBlockScaleRows.
  int scale_mode() const { return is_coarse() ? 0 : 1; }
  // Of K that one row of scales serves.
  int64_t unit() const { return is_coarse() ? kScaledTileK : kBlockStep; }
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

// First launch: rounds A, brings the scales of B into fp32, zeroes flags, and copies B where
// cp.async cannot read it as it is.
struct BlockPrepareArgs {
  BlockGemmProblem problem;
  BlockForm form;
  int8_t* qa = nullptr;  // [m, form.k], rows of qa_stride bytes, a multiple of 16
  int64_t qa_stride = 0;
  RowScale* rows = nullptr;        // [blocks, m]
  ColumnScale* columns = nullptr;  // [blocks, n]; null: none are wanted
  int* flags = nullptr;            // stream-K: `flag_count` ints to zero
  int flag_count = 0;
  int8_t* b_copy = nullptr;   // null: B is read as it is. [n, form.k], rows of b_copy_stride
  int64_t b_copy_stride = 0;  // bytes, a multiple of 16
  void* stream = nullptr;     // cudaStream_t
};

// Second launch. Rows of a and b start on 16 bytes.
struct BlockGemmArgs {
  int m = 0, n = 0;
  BlockForm form;
  const int8_t* a = nullptr;  // [m, form.k], a_stride bytes between rows
  int64_t a_stride = 0;
  const int8_t* b = nullptr;  // [n, form.k], b_stride bytes between rows
  int64_t b_stride = 0;
  const RowScale* rows = nullptr;               // [blocks, m]
  const ColumnScale* columns = nullptr;         // [blocks, n]
  ElementType element = ElementType::kFloat16;  // of bias and d
  const void* bias = nullptr;                   // [n] or null
  Activation activation = Activation::kIdentity;
  void* d = nullptr;             // [m, n], contiguous
  SplitK split = SplitK::kNone;  // not kParallel
  int slices = 1;
  float* partials = nullptr;  // stream-K: a tile per block
  int* flags = nullptr;       // stream-K: one zeroed int per block
  void* stream = nullptr;
};

using BlockGemmLaunch = int (*)(const BlockGemmArgs&);  // returns a cudaError_t

}  // namespace mixed_gemm
