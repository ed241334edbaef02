// The seam between the instruction sets and the driver: each set is one table of plain functions.
// A new set (avx512_bf16, VNNI, NEON) is one more kernels_*.cpp and one more row in
// instruction_set.cpp.
//
// In every kernel a vector lane is one output column. The packed words of `lanes` neighbouring
// columns are transposed once per 64 x lanes tile; from there scales, zeros, sums and results are
// plain vectors over columns, any group size that is a multiple of 16 fits, and nothing is ever
// summed across lanes.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm::cpu {

constexpr int kTileK = 64;         // elements of K in a tile of the packed weight
constexpr int kSegmentK = 16;      // group boundaries fall on multiples of this
constexpr int kTileBytes = 128;    // a tile of one column group, WeightLayout::kLineBytes
constexpr int kMaxLanes = 16;      // columns in the widest vector
constexpr int kMaxRows = 8;        // rows of A that share one decoding of a weight
constexpr int kRowChoices = 4;     // compiled row counts: 1, 2, 4, 8
constexpr int kUnitsPerPanel = 2;  // vectors of columns in a dense panel

// `lanes` columns of the packed weight. Column group i (4 columns of int4, 2 of int8) has its tile
// t at first + i * group_stride + t * kTileBytes.
struct PackedColumns {
  const uint8_t* first;
  int64_t group_stride;
};

// Scales and zeros of those columns in fp32: group g, lane l at g * stride + l. Groups without a
// real element of K, and lanes without a real column, are 0.
struct ColumnScales {
  const float* scale;
  const float* zero;
  int64_t stride;
  int64_t segments_per_group;
  ZeroMode zero_mode;
};

// `rows` rows of A in fp32 with pre_scale applied, row index innermost, zero beyond the real k and
// m.
struct ActivationRows {
  const float* values;      // [k_pad, rows]
  const float* group_sums;  // [ceil(k_pad / group), rows]; read only when there are zeros
};

// A matrix of 16/32-bit floats: `stride` in elements.
struct FloatRows {
  ElementType element;
  const void* data;
  int64_t stride;
};

struct CpuKernels {
  const char* name;
  int lanes;
  int64_t max_fused_rows;  // from more rows of A on, the dense path is faster

  // out[r * lanes + lane] = sum over K of a[r] * w[lane]: the weight is decoded in registers.
  using Fused = void (*)(const PackedColumns&, const ColumnScales&, const ActivationRows&,
                         int64_t tiles, float* out);
  Fused fused[kRowChoices][2];  // [log2(rows)][bits == 8]

  // panel[(k - 64 * tile_begin) * panel_stride + lane] = w.
  using Dequantize = void (*)(const PackedColumns&, const ColumnScales&, int64_t tile_begin,
                              int64_t tile_end, float* panel, int64_t panel_stride);
  Dequantize dequantize[2];  // [bits == 8]

  // c[rows, kUnitsPerPanel * lanes] += a[k, rows]^T * panel[k, kUnitsPerPanel * lanes].
  using Multiply = void (*)(const float* a, const float* panel, int64_t k, float* c);
  Multiply multiply[kRowChoices];  // [log2(rows)]

  void (*to_float)(const FloatRows& from, int64_t rows, int64_t columns, float* to,
                   int64_t to_stride);
  void (*from_float)(const float* from, int64_t count, ElementType element, void* to);
};

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();

}  // namespace mixed_gemm::cpu
