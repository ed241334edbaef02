// The way of tokens to the experts of a mixture and back, as plain data. No torch.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// Every token has some choices, each of them an expert. Rows are the choices in the order of their
// experts and, for one expert, in that of t * choices + j: row `positions[t, j]` is the token t.
// offs[e] is where the rows of expert e end. A choice whose id is no expert has no row and the
// position -1; there are tokens * choices rows all the same, of which those from offs[experts - 1]
// on are zeros.
struct MoePermuteProblem {
  int64_t tokens = 0, choices = 0;  // choices: of a token; of all of them fewer than 2^31
  int64_t experts = 0;
  bool wide_ids = false;      // int64, else int32
  const void* ids = nullptr;  // [tokens, choices], contiguous
  ElementType element = ElementType::kFloat16;
  int64_t k = 0;
  const void* hidden = nullptr;  // row-major: (t, k) at t * hidden_stride + k
  int64_t hidden_stride = 0;     // in elements
  void* rows = nullptr;          // [tokens * choices, k], contiguous; written
  int32_t* offs = nullptr;       // [experts], written
  int32_t* positions = nullptr;  // [tokens, choices], contiguous; written

  int64_t count() const { return tokens * choices; }
};

// d[t] = sum over j of weights[t, j] * rows[positions[t, j]], where a position that is no row adds
// nothing, whatever its weight is. In fp32: the sum begins as 0, and each j is one fused multiply
// and add, in their order; it is rounded once, to the element.
struct MoeCombineProblem {
  int64_t tokens = 0, choices = 0;
  int64_t row_count = 0, k = 0;
  ElementType element = ElementType::kFloat16;  // of rows and d
  const void* rows = nullptr;                   // row-major: (i, k) at i * row_stride + k
  int64_t row_stride = 0;                       // in elements
  const int32_t* positions = nullptr;           // [tokens, choices], contiguous
  ElementType weight_type = ElementType::kFloat32;
  const void* weights = nullptr;  // [tokens, choices], contiguous
  void* d = nullptr;              // [tokens, k], contiguous; written

  constexpr bool has_row(int32_t position) const { return position >= 0 && position < row_count; }
};

}  // namespace mixed_gemm
