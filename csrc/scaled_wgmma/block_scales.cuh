// What the sums of a line of K are multiplied with when they are added to those of the lines
// before: the scales of a thread's two rows and of the columns of an instruction, of one block
// each. Or nothing, where an epilogue scales.
//
// They are read from device memory while a line is multiplied, by whoever needs them: two values of
// rows for a warp's 16 rows, each in four lanes, of lines next to each other, so seven of eight
// come from L1; by the copying warp a stage they would be 128 requests of four bytes.
#pragma once
#include <cstdint>

#include "core/mutant.h"
#include "cutlass/cutlass.h"
#include "scaled_wgmma/config.h"

namespace mixed_gemm {

struct NoBlockScaleArgs {};

struct BlockScaleArgs {
  const float *a, *b;      // [m, lines], [column_blocks, lines]; fewer than 2^31 with the strides
  int a_stride, b_stride;  // between rows
  int m, column_blocks;
};

// Where an epilogue scales.
template <int kParts>
struct NoBlockScales {
  __device__ NoBlockScales(const NoBlockScaleArgs&, int, int) {}
  __device__ void request(int) {}
  __device__ void take(int) {}
  __device__ float add(float sum, float product, int) const { return sum + product; }
};

// kParts: instructions side by side.
template <int kParts>
class BlockScales {
 public:
  // row: of a thread's first sum; column: of the warpgroup's first.
  __device__ BlockScales(const BlockScaleArgs& args, int row, int column)
      : args_(args), row_(row), column_(column) {}

  // Rows behind the last one take its scale: their sums are never stored.
  __device__ void request(int line) {
    if (MIXED_GEMM_MUTATED(ScaleOfLine)) line = max(line - 1, 0);
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) {
      of_row_[i] = load(args_.a + (min(row_ + 8 * i, args_.m - 1) * args_.a_stride + line));
    }
    CUTLASS_PRAGMA_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const int block = scale_block(column_ + part * kScaleBlock, args_.column_blocks);
      of_columns_[part] = load(args_.b + (block * args_.b_stride + line));
    }
  }
  // Of what came, that of an instruction for add(); behind the last one the next line may be
  // requested.
  __device__ void take(int part) {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < 2; ++i) scales_[i] = of_row_[i] * of_columns_[part];
  }

  // half: 0 for the thread's first row, 1 for the second.
  __device__ float add(float sum, float product, int half) const {
    return fmaf(scales_[half], product, sum);
  }

 private:
  // Not ld.global.nc, which ptxas would move in front of the wait for the kernel that wrote them.
  static __device__ float load(const float* from) {
    float value;
    asm volatile("ld.global.L2::128B.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
    return value;
  }

  const BlockScaleArgs& args_;
  int row_, column_;
  float of_row_[2], of_columns_[kParts], scales_[2];
};

}  // namespace mixed_gemm
