// Where a weight lies in the tensors of AWQ and GPTQ checkpoints, and the gather from there to the
// packed layout. Host and device; layout/repack.cpp and transform/repack.cuh walk it.
//
// Both files hold unsigned codes c with q = c - 2^(bits - 1), and the packed layout stores
// q + kBias of its weight type: at equal widths repacking moves bits and never computes.
#pragma once
#include <cstdint>

#include "core/macros.h"
#include "layout/code_places.h"
#include "layout/weight_layout.h"

namespace mixed_gemm {

// AutoAWQ "gemm": qweight int32 [K, N / 8]. A word holds 8 neighbouring columns of one row; column
// c of them is nibble c / 2 + c % 2 * 4 (in nibble order: columns 0 2 4 6 1 3 5 7), the order that
// WeightLayout has along K. qzeros has the same form with a row per group.
struct AwqLayout {
  static constexpr int kPerWord = 8;
  static constexpr int kBias = 8;
  static constexpr MIXED_GEMM_HOST_DEVICE int nibble_of(int column) {
    return column % kPerWord / 2 + column % 2 * 4;
  }
  static constexpr MIXED_GEMM_HOST_DEVICE int column_of(int nibble) {
    return nibble % 4 * 2 + nibble / 4;
  }
  static constexpr MIXED_GEMM_HOST_DEVICE int code(uint32_t word, int column) {
    return static_cast<int>(word >> (4 * nibble_of(column)) & 15);
  }
};

struct AwqWeight {
  using Stored = Int4;
  const uint32_t* qweight;  // [k, n / 8]
  int64_t n, k;

  MIXED_GEMM_HOST_DEVICE uint32_t stored(int64_t i, int64_t j) const {
    const int64_t word = j * (n / AwqLayout::kPerWord) + i / AwqLayout::kPerWord;
    return static_cast<uint32_t>(AwqLayout::code(qweight[word], static_cast<int>(i % 8)));
  }
};

// GPTQ: qweight int32 [K * bits / 32, N], each column a dense bit stream along K, lowest bits
// first; fields of 3 bits cross words. 2 and 3 bits are packed as 4. Row j of the result is row
// perm[j] of the file (act-order); a perm outside 0..k-1 gives q = 0 instead of a wild read.
template <typename Stored_>
struct GptqWeight {
  using Stored = Stored_;
  const uint32_t* qweight;
  const int32_t* perm;  // [k], or null
  int bits;             // 2, 3, 4 of Int4; 8 of Int8
  int64_t n, k;

  MIXED_GEMM_HOST_DEVICE uint32_t stored(int64_t i, int64_t j) const {
    constexpr uint32_t kBias = Stored::kBias;
    const int64_t row = perm == nullptr ? j : perm[j];
    if (row < 0 || row >= k) return kBias;
    const int64_t word = row * bits / 32;
    const int shift = static_cast<int>(row * bits % 32);
    uint32_t code = qweight[word * n + i] >> shift;
    if (shift + bits > 32) code |= qweight[(word + 1) * n + i] << (32 - shift);
    return (code & ((1u << bits) - 1)) + kBias - (1u << (bits - 1));
  }
};

// Word number `word` of the packed layout, padded to k_pad.
template <typename Source>
MIXED_GEMM_HOST_DEVICE uint32_t repacked_word(const Source& weight, int64_t word, int64_t k_pad) {
  using Weight = typename Source::Stored;
  using Layout = WeightLayout<Weight>;
  uint32_t bits = 0;
  MIXED_GEMM_UNROLL
  for (int slot = 0; slot < Layout::kPerWord; ++slot) {
    const auto e = Layout::element(word, slot, k_pad);
    const bool real = e.n < weight.n && e.k < weight.k;
    const uint32_t stored = real ? weight.stored(e.n, e.k) : static_cast<uint32_t>(Weight::kZero);
    bits |= Places<Weight>::spread(stored, slot);
  }
  return bits;
}

}  // namespace mixed_gemm
