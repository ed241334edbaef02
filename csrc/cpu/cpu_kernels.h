// The interface between the instruction sets and the driver: each set is one table of plain
// functions. A new set (NEON) is one more kernels_*.cpp and one more row in instruction_set.cpp.
//
// In every kernel a vector lane is one output column. The packed words of `lanes` neighbouring
// columns are transposed once per 64 x lanes tile; from there scales, zeros, sums and results are
// plain vectors over columns, any group size that is a multiple of 16 fits, and nothing is ever
// summed across lanes.
//
// Operands are made of 32-bit words: either one fp32, or the bf16 values of k and k + 1, of which a
// dot-product instruction takes both. Pairs hold A as it came and the weight as the number that its
// code stands for, which bf16 represents exactly; scales and zeros meet the fp32 sums of a group,
// or scales the weights, where bf16 has these products too (DenseKernels::fill_scaled). So both
// kinds keep the same error bound. (Numbers of a code book round to bf16; such pairs are made for
// activations of bf16 alone.) Tiles (AMX) multiply pairs too, 16 rows at a time; A that is no bf16
// comes to them as a sum of up to three bf16 numbers, exactly.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"
#include "core/tile.h"
#include "cpu/float8_kernels.h"
#include "cpu/integer_kernels.h"
#include "problem/gated_activation.h"

namespace mixed_gemm::cpu {

constexpr int kSegmentK = 16;      // group boundaries fall on multiples of this
constexpr int kTileBytes = 128;    // a tile of one column group, a line of layout/weight_layout.h
constexpr int kMaxLanes = 16;      // columns in the widest vector
constexpr int kMaxRows = 16;       // rows of A that share one decoding of a weight, at most
constexpr int kRowChoices = 5;     // compiled row counts: 1, 2, 4, 8, 16
constexpr int kUnitsPerPanel = 2;  // vectors of columns in a dense panel
constexpr int kMaxDepth = 2;       // elements of K in a word
constexpr int kTileRows = 16;      // rows of A in a tile register
constexpr int kTileStep = 32;      // elements of K in a tile register of A: 16 pairs

// `lanes` columns of the packed weight. Column group i (4 columns of 4 bits, 2 of 8) has its tile
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

// `rows` rows of A with pre_scale applied, zero beyond the real k and m.
struct ActivationRows {
  const void* values;       // words [k_pad / depth, rows], or of tiles as TileKernels has them
  const float* group_sums;  // [ceil(k_pad / group), rows]; read only when there are zeros
  int parts;                // bf16 numbers whose sum is one element of A; 1 unless for tiles
  int real_rows;            // that anybody reads
};

// Some elements of K of kUnitsPerPanel * lanes neighbouring columns, made by DenseKernels::fill.
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

// The part of the weight that is decoded at a time.
struct Blocking {
  int64_t columns;     // that share one passage of the rows of A
  int64_t slab_words;  // of K in a slab, at most
};

// Cache blocking after Goto and van de Geijn (2008), for vectors. A slab of some panels (128
// columns x 384 words, 192 KB) stays in L2 while the row blocks pass by; the slab of one row block
// (8 x 384 words, 12 KB) stays in L1 while the panels pass by. With one slab for all of K the sums
// go from L1 straight to the epilogue: N = 1536, K = 384, one thread of a Cascade Lake 91 -> 113
// GFLOP/s at M = 1024 (MKL 133), against slabs of 128 and a pass of its own for the epilogue. 256
// columns were as fast or, by the luck of the pages in a physically indexed L2, a third slower.
constexpr Blocking kVectorBlocking = {128, 384};

// The blocked kernels of one kind of words: panels of columns are decoded into a slab that stays in
// cache, then multiplied.
struct DenseKernels {
  int depth;       // elements of K in a word: 1 is fp32, 2 are bf16
  int block_rows;  // rows of A that `multiply` takes at a time, at most
  Blocking blocking;

  // Fills one unit of a PanelSlab: panel[(k - 64 * tile_begin) / depth * stride + lane]. Words of
  // depth 1 are the real weights w, of depth 2 what codes stand for.
  using Fill = void (*)(const PackedColumns&, const ColumnScales&, int64_t tile_begin,
                        int64_t tile_end, void* panel, int64_t stride);
  Fill fill[kNumWeights];  // [WeightType]; null: no kernel of these decodes it, nor `fused`
  bool decodes(WeightType weight) const { return fill[static_cast<int>(weight)] != nullptr; }

  // Adds the slab's share of a * w to c [rows, kUnitsPerPanel * lanes], where a.values starts at
  // slab.k_begin. Slabs come in order, the first one overwrites c, and c is complete after the
  // last. `open`, like c, is the kernel's own: depth 2 keeps the sums of a group there that two
  // slabs share.
  using Multiply = void (*)(const ActivationRows& a, const PanelSlab& slab, float* c, float* open,
                            int64_t stride);
  Multiply multiply[kRowChoices];  // [log2(rows)]; of tiles [rows / kTileRows - 1]

  // As `fill`, with pairs times their scales, where those are bf16 numbers
  // (UnitScales::make_pairs): all of K is one group then, and sums need no scale. Null: `fill`
  // makes real weights, or scales are never such.
  Fill fill_scaled[kNumWeights] = {};
};

// The kernels of one kind of words.
struct OperandKernels {
  DenseKernels dense;
  // [WeightType]: with more rows of A the dense path is faster.
  int64_t max_fused_rows[kNumWeights];

  // out[r * lanes + lane] = sum over K of a[r] * w[lane]: the weight is decoded in registers.
  using Fused = void (*)(const PackedColumns&, const ColumnScales&, const ActivationRows&,
                         int64_t tiles, float* out);
  Fused fused[kRowChoices][kNumWeights];  // [log2(rows)][WeightType]
};

// The kernels on tile registers. A block of 16 or 32 rows of A is bf16 [k_pad / 32, parts, rows,
// 32]: each 16 rows of a part are one tile register, 1 KB in a piece.
struct TileKernels {
  DenseKernels dense;  // its slabs are those of bf16 pairs

  // While the rows of A that share a slab take no more than these bytes, narrow[WeightType] is used
  // in place of dense.blocking: A comes from L2 and the slab, decoded just before, from L1.
  int64_t narrow_bytes;
  Blocking narrow[kNumWeights];

  // [WeightType]: from as many rows of A on, tiles are faster than `fused`.
  int64_t min_rows[kNumWeights];

  // Take and give back the tile registers of the calling thread, for groups of that many segments.
  // Between the two no other code may use them.
  void (*begin)(int64_t segments_per_group);
  void (*end)();

  // Splits `count` (a multiple of 32) fp32 elements of one row into bf16 numbers, largest first,
  // whose sum they are; part p of element k goes to (k / 32 * parts + p) * part_stride + k % 32.
  void (*split)(const float* from, int64_t count, int parts, uint16_t* to, int64_t part_stride);

  // Sums one row that split() wrote: sums[g * stride] = sum of a over group g, rounded once.
  void (*sum_groups)(const uint16_t* from, int64_t k_pad, int parts, int64_t part_stride,
                     int64_t segments_per_group, float* sums, int64_t stride);
};

struct CpuKernels {
  const char* name;
  int lanes;
  OperandKernels fp32;               // its fill dequantizes
  const OperandKernels* bf16_pairs;  // null: the set has no bf16 dot product, or a slow one
  const TileKernels* tiles;          // null: no tile registers
  const IntegerKernels* int8;

  void (*to_float)(const FloatRows& from, int64_t rows, int64_t columns, float* to,
                   int64_t to_stride);
  void (*from_float)(const float* from, int64_t count, ElementType element, void* to);

  const Float8Kernels* float8;

  // to[i] += from[i] * factor, each rounded once.
  void (*add_multiple)(const float* from, int64_t count, float factor, float* to);

  // row[i] becomes its activation.
  void (*activate_row)(Activation activation, float* row, int64_t count);

  // gate[i] becomes the gated activation of gate[i] and up[i].
  void (*gate_row)(const Gate& by, float* gate, const float* up, int64_t count);

  bool decodes(WeightType weight) const { return fp32.dense.decodes(weight); }

  // This table with one part exchanged, as another set has it.
  template <typename Part>
  [[gnu::always_inline]] CpuKernels with(const char* new_name, Part CpuKernels::*part,
                                         Part value) const {
    CpuKernels kernels = *this;
    kernels.name = new_name;
    kernels.*part = value;
    return kernels;
  }
};

const CpuKernels& portable_kernels();
const CpuKernels& avx2_kernels();
const CpuKernels& avx512_kernels();
const CpuKernels& avx512_vnni_kernels();
const CpuKernels& avx512_bf16_kernels();
const CpuKernels& avx512_amx_kernels();

}  // namespace mixed_gemm::cpu
