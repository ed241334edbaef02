// The swizzle: where 16-byte chunks of the A and B tiles go in shared memory, so that neither
// cp.async writes nor ldmatrix reads meet a bank conflict. Both tiles are lines of 128 bytes (all
// 32 banks); a line's chunks are permuted by its number.
#pragma once
#include "core/macros.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {

constexpr int kChunkBytes = 16;
constexpr int kChunksPerLine = 8;

// A: line = row of the tile, chunk = 8 elements of K. ldmatrix reads one chunk number from 8
// consecutive rows.
struct SwizzledLines {
  static constexpr MIXED_GEMM_HOST_DEVICE int offset(int row, int chunk) {
    return row * kLineBytes + (chunk ^ (row & 7)) * kChunkBytes;
  }
  // offset(row + rows, chunk) is (offset(row, chunk) ^ rows_xor(rows)) + rows * kLineBytes, where
  // `row` is less than the largest power of two that divides `rows`, or that one is at least 8.
  static constexpr MIXED_GEMM_HOST_DEVICE int rows_xor(int rows) {
    return (rows & 7) * kChunkBytes;
  }
};

// B: line = I columns, as in device memory. ldmatrix reads one block number from 8 consecutive
// columns, that is from 8 / I lines; exchanging the blocks of a column by the line number spreads
// them over all banks.
template <typename Weight>
struct SwizzledWeightLines {
  using Layout = WeightLayout<Weight>;
  static constexpr int kBlocks = Layout::kBlocksPerTile;
  static constexpr MIXED_GEMM_HOST_DEVICE int offset(int line, int chunk) {
    const int block = chunk % kBlocks;
    return line * kLineBytes + (chunk - block + (block ^ (line & (kBlocks - 1)))) * kChunkBytes;
  }
  static constexpr MIXED_GEMM_HOST_DEVICE int offset_of_column(int column, int block) {
    return offset(column / Layout::kInterleave, column % Layout::kInterleave * kBlocks + block);
  }
};

}  // namespace mixed_gemm
