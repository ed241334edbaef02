// A GEMM whose rows belong to experts, each with a weight of its own, as plain data.
#pragma once
#include <cstdint>
#include <tuple>

#include "layout/weight_layout.h"
#include "problem/gemm.h"

namespace mixed_gemm {

// Rows offs[e - 1] to offs[e] - 1 of a and d belong to expert e, with offs[-1] = 0; rows from
// offs[experts - 1] on belong to none, and their outputs are 0. Kernels of a GPU, which cannot
// refuse offsets, take them as end_of_expert() does.
struct GroupedGemmProblem {
  // m: rows of all experts; b_packed, scales, zeros, factor and bias: of expert 0.
  GemmProblem gemm;
  int64_t experts = 0;
  const int32_t* offs = nullptr;  // [experts], where a is

  // From an expert to the next one: bytes of b_packed; elements of scales and zeros, whose rows
  // have the same stride in all of them; elements of factor and bias.
  int64_t packed_stride() const {
    const int bits = bits_of(gemm.scheme.weight);
    return round_up(gemm.n, kPadN) * (round_up(gemm.k, kPadK) * bits / 8);
  }
  int64_t scale_stride() const { return num_groups(gemm) * gemm.scale_stride; }
  int64_t column_stride() const { return gemm.n; }
};

inline auto selection_key(const GroupedGemmProblem& problem) {
  const auto& [gemm, experts, offs] = problem;
  return std::tuple_cat(selection_key(gemm), std::tuple(experts));
}

// Where the rows of an expert end, of an offset that may be any number: not before those of the
// experts in front of it, nor behind the last row.
constexpr int64_t end_of_expert(int64_t offset, int64_t end_before, int64_t rows) {
  return offset < end_before ? end_before : offset < rows ? offset : rows;
}

}  // namespace mixed_gemm
