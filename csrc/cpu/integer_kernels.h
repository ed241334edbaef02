// Part of the interface of cpu_kernels.h: int8 dot products and rounding to int8, one table for
// each instruction set.
//
// Here a vector lane is an element of K: A and B both lie with K contiguous, so nothing is packed,
// and a sum is added across lanes once, at its end. That end costs about as much as 128 elements of
// K (2 shuffles and 2 additions a sum of 16 lanes).
#pragma once
#include <cstdint>

namespace mixed_gemm::cpu {

constexpr int kIntegerRowChoices = 4;  // compiled row counts: 1, 2, 4, 8

// The sums of many rows on tile registers. Columns of B are read as they lie, 16 of them by 64
// elements of K in a register, as the left operand; so the rows of A are the ones that are laid
// out anew, and sums come as [column, row].
struct IntegerTiles {
  static constexpr int kRows = 16;   // of A in a register
  static constexpr int kStepK = 64;  // elements of K in a register

  int64_t min_rows;  // of A: from as many on, faster than the dot products

  // Prepares up to 16 rows of A as [ceil(k / 64), 16, 16] words of four elements of K: word (i, j)
  // holds the elements 4 i ... 4 i + 3 of row j. The rest of them is zero.
  void (*prepare)(const int8_t* a, int64_t lda, int64_t rows, int64_t k, void* to);

  // sums[r * stride + c] = sum over k of a[r][k] * b[c][k] of up to 64 rows and 48 columns.
  struct Operands {
    const char* a;         // of the first 16 rows, as prepared
    int64_t block_stride;  // in bytes, to the next 16 rows
    int64_t rows;
    const int8_t* b;  // column c at c * ldb; nothing is read beyond the last one
    int64_t ldb;
    int64_t columns;
    int64_t k;
  };
  void (*multiply)(const Operands& operands, int32_t* sums, int64_t stride);
};

struct IntegerKernels {
  int k_step;       // A is prepared to whole multiples of this, filled up with zeros
  int a_bytes;      // of one prepared element of A
  int max_rows;     // of A that share a load of B: 4 or 8
  bool b_shifted;   // multiplies b + 128: sums start at -128 * (sum of the row of A)
  int max_columns;  // the most columns that a shape below takes

  // Writes one row of A as the kernel reads it.
  void (*prepare)(const int8_t* a, int64_t k, void* to);

  // sums[r * stride + c] += sum over k of a[r][k] * b[c][k], modulo 2^32. Row r of A starts at
  // r * a_stride elements, column c of B at c * ldb.
  struct Operands {
    const void* a;
    int64_t a_stride;
    const int8_t* b;
    int64_t ldb;
    int64_t k;  // nothing of b is read beyond
  };
  using Multiply = void (*)(const Operands& operands, int32_t* sums, int64_t stride);
  struct Shape {
    int columns;
    Multiply block;   // that many columns
    Multiply single;  // one
  };
  Shape shapes[kIntegerRowChoices];  // [log2(rows)], up to max_rows

  // The smallest and largest of a row, 0 and 0 of an empty one; a NaN in it sets nan (the rest is
  // then anything).
  struct Range {
    float low, high;
    bool nan;
  };
  Range (*range)(const float* row, int64_t k);

  // Rounds as problem/quantize.h says, for |azp| <= 2^22.
  void (*round)(const float* row, int64_t k, float inverse, int32_t azp, int8_t* q);

  // to[j] = sums[j] - azp * adjustment[j], an exact integer, rounded once.
  struct ZeroPoint {
    const int32_t* adjustment;  // null: none
    int64_t azp;
    bool fits;  // into 32 bits, on the way as well
  };
  void (*to_real)(const int32_t* sums, int64_t count, const ZeroPoint& zero, float* to);

  // values[j] = scale_a * (scale_b[j] * values[j]) + bias[j].
  struct RowScale {
    float scale_a;
    const float* scale_b;
    bool one_scale_b;   // for all columns
    const float* bias;  // null: none
  };
  void (*scale)(const RowScale& scale, int64_t count, float* values);

  const IntegerTiles* tiles = nullptr;  // null: no tile registers

  [[gnu::always_inline]] IntegerKernels with(const IntegerTiles* new_tiles) const {
    IntegerKernels kernels = *this;
    kernels.tiles = new_tiles;
    return kernels;
  }
};

}  // namespace mixed_gemm::cpu
