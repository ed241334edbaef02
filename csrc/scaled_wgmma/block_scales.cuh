// Scales of blocks, which multiply the sums of a line of K when these are added to those of the
// lines before: the scales of a thread's two rows and of the columns of an instruction, of one
// block each. There are none where an epilogue scales.
//
// Each thread reads its own from device memory while a line is multiplied: two values of rows for a
// warp's 16 rows, each in four lanes, of lines next to each other, so seven of eight come from L1.
// For the copying warp they would be 128 requests of four bytes a stage.
#pragma once
#include <cstdint>

#include "cutlass/cutlass.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

struct NoBlockScaleArgs {};

struct BlockScaleArgs {
  const float *a, *b;      // [m, lines], [column_blocks, lines]; fewer than 2^31 with the strides
  int a_stride, b_stride;  // between rows
  int m, column_blocks;
};

// Does nothing, where an epilogue scales.
struct NoBlockScales {
  __device__ NoBlockScales(const NoBlockScaleArgs&, int, int, int) {}
  __device__ void request() {}
  __device__ void take() {}
  __device__ float add(float sum, float product, int, int) const { return sum + product; }
};

// kParts: instructions side by side.
template <int kParts>
class BlockScales {
 public:
  // row: of a thread's first sum; column: of the warpgroup's first; line: of K, the first. Rows
  // behind the last one take its scale: their sums are never stored.
  __device__ BlockScales(const BlockScaleArgs& args, int row, int column, int line) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      rows_[i] = args.a + (min(row + 8 * i, args.m - 1) * args.a_stride + line);
    }
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const int block = scale_block(column + part * kScaleBlock, args.column_blocks);
      columns_[part] = args.b + (block * args.b_stride + line);
    }
  }

  // Requests the scales of the line after the one requested last.
  __device__ void request() {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) of_row_[i] = load(rows_[i]++);
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < kParts; ++part) of_columns_[part] = load(columns_[part]++);
  }
  // From now on add() takes the scales requested last, and the next line may be requested.
  __device__ void take() {
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < kParts; ++part) {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) scales_[part][i] = of_row_[i] * of_columns_[part];
    }
  }

  // half: 0 for the thread's first row, 1 for the second.
  __device__ float add(float sum, float product, int half, int part) const {
    return fmaf(scales_[part][half], product, sum);
  }

 private:
  // No ld.global.nc, which ptxas would move in front of the wait for the kernel that wrote them.
  static __device__ float load(const float* from) {
    float value;
    asm volatile("ld.global.L2::128B.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
  }

  const float *rows_[2], *columns_[kParts];
  float of_row_[2], of_columns_[kParts], scales_[kParts][2];
};

}  // namespace mixed_gemm
