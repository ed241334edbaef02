// One 8-bit GEMM with a scaled epilogue as plain data: what ops/ hands to cpu/ and dispatch/. No
// torch, no CUTLASS.
#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/build.h"
#include "core/device.h"
#include "core/quant_scheme.h"

namespace mixed_gemm {

enum class OperandType : int { kInt8, kFloat8E4M3 };
constexpr const char* kOperandTypeNames[] = {"int8", "float8_e4m3fn"};

// -128 * -128 * K is the largest sum of int8 products: below 2^31 up to this K, so an int32
// accumulator is exact for every input. 131072 of them wrap.
constexpr int64_t kMaxInt8K = 131071;

// D[m, n] = scale_a[m] * (scale_b[n] * sum) + bias[n], where
//   sum = sum_k a[m, k] * b[k, n]                                       no azp_adj
//       = sum_k a[m, k] * b[k, n] - azp_adj[n]                          azp_adj, no azp
//       = sum_k a[m, k] * b[k, n] - azp[m] * azp_adj[n]                 both
// int8: the sum is an exact integer (the last two need up to 64 bits, see epilogue/), rounded to
// fp32 once. fp8: products are exact, the sum is fp32 and there is no azp. Then fp32, and one
// rounding to `out`.
//
// With blocks (fp8 only), over the blocks g of block_k elements of K, of which the last may be
// short:
//   D[m, n] = sum_g (scale_a[m, g] * scale_b[n / block_n, g]) * sum_{k in g} a[m, k] * b[k, n] +
//   bias[n]
// the product of the scales, the sum of a block and the sum over blocks in fp32.
//
// Scales are any fp32 numbers, and nobody looks at them: 0 makes its rows, columns or blocks 0, an
// infinity or a NaN makes them what IEEE arithmetic makes of it (infinity * 0 is NaN).
struct ScaledMmProblem {
  int64_t m = 0, n = 0, k = 0;
  OperandType operand = OperandType::kInt8;  // of a and b
  ElementType out = ElementType::kFloat16;   // of bias and d

  const void* a = nullptr;           // row-major: (i, k) at i * lda + k; lda may be 0
  int64_t lda = 0;                   // in elements
  const void* b = nullptr;           // column-major: (k, j) at j * ldb + k; ldb may be 0
  int64_t ldb = 0;                   // in elements
  const float* scale_a = nullptr;    // row i at i * scale_a_stride
  int64_t scale_a_stride = 0;        // 0: one scale, 1: one for each row
  const float* scale_b = nullptr;    // column j at j * scale_b_stride
  int64_t scale_b_stride = 0;        // 0: one scale, 1: one for each column
  const int32_t* azp_adj = nullptr;  // [n] or null
  const int32_t* azp = nullptr;      // [m] or null; needs azp_adj
  const void* bias = nullptr;        // [n] or null
  void* d = nullptr;                 // [m, n], contiguous
  // 0: scales as above. Else scale_a is [m, ceil(k / block_k)], (i, g) at i * scale_a_stride + g,
  // and scale_b [ceil(n / block_n), ceil(k / block_k)], (j / block_n, g) at (j / block_n) *
  // scale_b_stride + g.
  int64_t block_k = 0;
  int64_t block_n = 0;
};

inline auto selection_key(const ScaledMmProblem& problem) {
  const auto& [m, n, k, operand, out, a, lda, b, ldb, scale_a, scale_a_stride, scale_b,
               scale_b_stride, azp_adj, azp, bias, d, block_k, block_n] = problem;
  return std::tuple(m, n, k, operand, out, lda, ldb, scale_a_stride, scale_b_stride,
                    azp_adj != nullptr, azp != nullptr, bias != nullptr, block_k, block_n);
}

// Reasons why no backend runs this 8-bit GEMM. Empty: accepted.
std::vector<std::string> why_not_scaled_mm(int64_t m, int64_t n, int64_t k, OperandType operand);

// Reason why these operands have no blocks of block_size = {block_n, block_k}; or empty.
std::string why_not_blocks(OperandType operand, const std::vector<int64_t>& block_size);

// Reason why the device, or the build, has no kernel for these operands; or empty.
std::string why_not_operand(OperandType operand, const DeviceInfo& device,
                            const Build& build = this_build());

}  // namespace mixed_gemm
