// The seam between the instruction sets and the driver: each set is one table of plain functions.
// A new set (NEON, AMX) is one more kernels_*.cpp and one more row in instruction_set.cpp.
//
// In every kernel a vector lane is one output column. The packed words of `lanes` neighbouring
// columns are transposed once per 64 x lanes tile; from there scales, zeros, sums and results are
// plain vectors over columns, any group size that is a multiple of 16 fits, and nothing is ever
// summed across lanes.
//
// Operands are made of 32-bit words: either one fp32, or the bf16 values of k and k + 1, of which a
// dot-product instruction takes both. Pairs hold A as it came and the weight as the integer q,
// which bf16 represents exactly for 4 and 8 bits; scales and zeros meet the fp32 sums of a group.
// So both kinds keep the same error bound.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "cpu/integer_kernels.h"

namespace mixed_gemm::cpu {

constexpr int kTileK = 64;         // elements of K in a tile of the packed weight
constexpr int kSegmentK = 16;      // group boundaries fall on multiples of this
constexpr int kTileBytes = 128;    // a tile of one column group, WeightLayout::kLineBytes
constexpr int kMaxLanes = 16;      // columns in the widest vector
constexpr int kMaxRows = 8;        // rows of A that share one decoding of a weight
constexpr int kRowChoices = 4;     // compiled row counts: 1, 2, 4, 8
constexpr int kUnitsPerPanel = 2;  // vectors of columns in a dense panel
constexpr int kMaxDepth = 2;       // elements of K in a word

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

// `rows` rows of A with pre_scale applied, row index innermost, zero beyond the real k and m.
struct ActivationRows {
  const void* values;       // words [k_pad / depth, rows]
  const float* group_sums;  // [ceil(k_pad / group), rows]; read only when there are zeros
};

// Some elements of K of kUnitsPerPanel * lanes neighbouring columns, made by OperandKernels::fill.
struct PanelSlab {
  const void* values;  // words [(k_end - k_begin) / depth, kUnitsPerPanel * lanes]
  ColumnScales scales;
  int64_t k_begin, k_end;  // multiples of 64, or all of K at its end
  bool last;               // ends K
};

// A matrix of 16/32-bit floats: `stride` in elements.
struct FloatRows {
  ElementType element;
  const void* data;
  int64_t stride;
};

// The kernels of one kind of words.
struct OperandKernels {
  int depth;                  // elements of K in a word: 1 is fp32, 2 are bf16
  int64_t max_fused_rows[2];  // [bits == 8]: from more rows of A on, the dense path is faster

  // out[r * lanes + lane] = sum over K of a[r] * w[lane]: the weight is decoded in registers.
  using Fused = void (*)(const PackedColumns&, const ColumnScales&, const ActivationRows&,
                         int64_t tiles, float* out);
  Fused fused[kRowChoices][2];  // [log2(rows)][bits == 8]

  // The words of one unit of a PanelSlab: panel[(k - 64 * tile_begin) / depth * stride + lane]. Of
  // depth 1 the real weights w, of depth 2 the integers q.
  using Fill = void (*)(const PackedColumns&, const ColumnScales&, int64_t tile_begin,
                        int64_t tile_end, void* panel, int64_t stride);
  Fill fill[2];  // [bits == 8]

  // Adds the slab's share of a * w to c [rows, kUnitsPerPanel * lanes], where a.values starts at
  // slab.k_begin. Slabs come in order, the first one overwrites c, and c is complete after the
  // last. `open`, like c, is the kernel's own: depth 2 keeps the sums of a group there that two
  // slabs share.
  using Multiply = void (*)(const ActivationRows& a, const PanelSlab& slab, float* c, float* open,
                            int64_t stride);
  Multiply multiply[kRowChoices];  // [log2(rows)]
};

struct CpuKernels {
  const char* name;
  int lanes;
  OperandKernels fp32;               // its fill dequantizes
  const OperandKernels* bf16_pairs;  // null: the set has no bf16 dot product
  const IntegerKernels* int8;

  void (*to_float)(const FloatRows& from, int64_t rows, int64_t columns, float* to,
                   int64_t to_stride);
  void (*from_float)(const float* from, int64_t count, ElementType element, void* to);
};

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
const CpuKernels& avx512_vnni_kernels();
const CpuKernels& avx512_bf16_kernels();

}  // namespace mixed_gemm::cpu
