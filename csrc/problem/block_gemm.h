// One GEMM whose activations are rounded to int8 on line, per row and block of K, as plain data. No
// torch, no CUTLASS.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>

#include "problem/quantize.h"

namespace mixed_gemm {

// D[m, n] = activation(bias[n] + sum over blocks i of K of
//     sum over k in block i of (scale_a[m, i] * qa[m, k] + offset_a[m, i]) *
//                              (scale_b[i, n] * b[k, n] + offset_b[i, n]))
// which per block is, with C = sum qa * b (exact in int32) and K_i the size of the block,
//     scale_a * (scale_b * C + offset_b * sum qa) + offset_a * (scale_b * sum b + K_i * offset_b)
// in fp32, blocks added in fp32, then one rounding to `element`.
//
// qa, scale_a and offset_a follow from the row's block of a by this formula, in fp32, which every
// backend follows bit for bit:
//     high = max a, low = min a
//     scale  = max((high / 2 - low / 2) / 127.5, kMinScale)
//     offset = high - 127 * scale                               product, then difference
//     q      = clamp(round((a - offset) * (1 / scale)), -128, 127)
// so low is near -128, high near 127, and a block of equal values (0, or from 2^-95 on) is exact. A
// block with a NaN or an infinity has scale NaN and q = 0: its row of D becomes NaN.
struct BlockGemmProblem {
  int64_t m = 0, n = 0, k = 0;
  ElementType element = ElementType::kFloat16;  // of a, scale_b, offset_b, bias and d
  int64_t block_size = 0;                       // elements of K; one block is k itself, never -1
  Activation activation = Activation::kIdentity;

  const void* a = nullptr;         // row-major: (i, k) at i * lda + k; lda may be 0
  int64_t lda = 0;                 // in elements
  const int8_t* b = nullptr;       // column-major: (k, j) at j * ldb + k; ldb may be 0
  int64_t ldb = 0;                 // in elements
  const void* scale_b = nullptr;   // [ceil(k / block_size), n], row stride scale_stride
  const void* offset_b = nullptr;  // same shape and stride
  int64_t scale_stride = 0;        // in elements
  const void* bias = nullptr;      // [n] or null
  // [blocks(), n] contiguous, sum b of the formula, trusted. Null: it is summed in the call.
  const int32_t* b_sums = nullptr;
  void* d = nullptr;  // [m, n], contiguous

  int64_t blocks() const { return k == 0 ? 0 : ceil_div(k, block_size); }
};

// Sums are left out: with them and without the same is chosen, so that both give the same bits.
inline auto selection_key(const BlockGemmProblem& problem) {
  const auto& [m, n, k, element, block_size, activation, a, lda, b, ldb, scale_b, offset_b,
               scale_stride, bias, b_sums, d] = problem;
  return std::tuple(m, n, k, element, block_size, activation, lda, ldb, scale_stride,
                    bias != nullptr);
}

// Why no backend runs the block GEMM, or empty. block_size as the user gave it.
std::string why_not_block_gemm(int64_t m, int64_t n, int64_t k, int64_t block_size);

}  // namespace mixed_gemm
