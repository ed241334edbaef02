// Part of the interface of cpu_kernels.h: products of float8 e4m3 and rounding to it, one table for
// each instruction set, and one on tile registers.
//
// As in integer_kernels.h a vector lane is an element of K: both operands lie with K contiguous, so
// nothing is packed, a code is decoded in registers, and a sum is added across lanes once, at its
// end. Scales of blocks of K meet the lanes before that, which costs one fma a block.
//
// Every product is exact: both factors have 4 significant bits.
#pragma once
#include <cstdint>

namespace mixed_gemm::cpu {

constexpr int kFloat8RowChoices = 4;  // compiled row counts: 1, 2, 4, 8

// K is cut into segments of `length` elements, the last one may be short: the blocks that have
// scales, or any piece of K where there are none. In prepared rows a segment takes `padded`
// elements, whole steps of the kernel, filled up with zeros.
struct Float8Segments {
  int64_t length, padded;
};

struct Float8TileKernels;

struct Float8Kernels {
  int k_step;    // elements of K in a step
  int a_bytes;   // of one prepared element of A
  int max_rows;  // of A that share a decoding of B, at most

  // Writes a row of A, at most a segment long, as the kernel reads it.
  void (*prepare)(const uint8_t* a, int64_t k, void* to);

  struct Operands {
    const void* a;     // prepared; the first segment of the call
    int64_t a_stride;  // elements between rows
    const uint8_t* b;  // column c at c * ldb
    int64_t ldb;
    int64_t k;  // nothing of b is read beyond
    Float8Segments segments;
    // Scales of segment g: row r at r * scale_a_stride + g, column c at scale_b[c] + g. Null: none.
    const float* scale_a;
    int64_t scale_a_stride;
    const float* const* scale_b;
  };
  // sums[r * stride + c] += the sum of a * b over all segments, times scale_a * scale_b of each.
  using Multiply = void (*)(const Operands& operands, float* sums, int64_t stride);
  struct Shape {
    int columns;
    Multiply block;   // that many columns
    Multiply single;  // one
  };
  Shape shapes[kFloat8RowChoices];  // [log2(rows)], up to max_rows

  // As problem/quantize.h says: max |x|, NaN where there is one; and the codes of x / scale.
  float (*largest)(const float* x, int64_t count);
  void (*round)(const float* x, int64_t count, float scale, uint8_t* q);

  const Float8TileKernels* tiles = nullptr;  // null: no tile registers
};

// Kernels on tile registers: 16 columns of B are the rows of one register, so that codes are
// decoded as they lie, and 16 rows of A are prepared as its columns. A sum comes out as [column of
// B, row of A].
struct Float8TileKernels {
  int64_t min_rows;  // from as many rows of A on, tiles are faster than Float8Kernels

  // Take and give back the thread's tile registers. Between the two no other code may use them.
  void (*begin)();
  void (*end)();

  // Prepares one segment of `count` rows of A (at most 16; the rest are zeros): steps of 1 KB, each
  // `step_bytes` behind the one before.
  void (*prepare)(const uint8_t* a, int64_t lda, int count, int64_t k, int64_t padded, void* to,
                  int64_t step_bytes);

  // Decodes one segment of `count` columns of B (at most 16; the rest are zeros) to bf16
  // [padded / 32, 16, 32].
  void (*decode)(const uint8_t* b, int64_t ldb, int count, int64_t k, int64_t padded, void* to);

  struct Operands {
    const void* a;         // prepared: [steps, tiles of 16 rows], the first tile of this call
    int64_t a_step_bytes;  // between steps
    const void* b;         // decoded: [tiles of 16 columns, steps]
    int64_t b_tile_bytes;  // between tiles of columns
    int64_t steps;         // of 32 elements of K
    // Scales of these elements: row r of the call at r, column c at scale_b[c][segment]. Or null.
    const float* scale_a;
    const float* const* scale_b;
    int64_t segment;
  };
  // sums[c * stride + r] += the sum of a * b times both scales, for 16 or 32 columns and rows.
  using Multiply = void (*)(const Operands& operands, float* sums, int64_t stride);
  Multiply multiply[2][2];  // [tiles of columns - 1][tiles of rows - 1]
};

}  // namespace mixed_gemm::cpu
