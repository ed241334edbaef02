// Rounding of activations to int8 and float8 as plain data, and the formulas that every backend
// follows bit for bit. No torch.
#pragma once
#include <cstdint>

#include "core/quant_scheme.h"

namespace mixed_gemm {

// The least scale: the smallest normal fp32, so that its reciprocal is finite. A row of zeros has
// this scale.
constexpr float kMinScale = 1.17549435e-38f;  // 2^-126
constexpr int32_t kMaxAzp = 1 << 22;

// q = clamp(round(a * (1 / scale)) + azp, -128, 127), so a is about scale * (q - azp). All in fp32:
// one division for 1 / scale, one product, rounding to nearest even, then an integer addition. A
// NaN in `a` counts as 0 and infinities saturate. An azp beyond +-2^22 counts as that, so that all
// of this is exact in fp32 and int32.
//
// Per token, each row chooses its own scale and azp:
//   symmetric   scale = max(max |a| / 127, kMinScale), azp = 0, q in -127..127
//   with azp    low = min(0, min a), high = max(0, max a),
//               scale = max(high / 255 - low / 255, kMinScale)
//               azp = clamp(-128 - round(low * (1 / scale)), -128, 127)
// A row that holds a NaN has scale NaN, one that holds an infinity has scale infinity; both have
// q = 0 and azp = 0, so whatever is multiplied with it becomes NaN, as it does in floating point.
struct QuantizeProblem {
  int64_t m = 0, k = 0;
  ElementType element = ElementType::kFloat16;  // of a
  const void* a = nullptr;                      // row-major: (i, k) at i * a_stride + k
  int64_t a_stride = 0;                         // in elements
  int8_t* q = nullptr;                          // [m, k], contiguous
};

struct QuantizePerTokenProblem : QuantizeProblem {
  float* scale = nullptr;  // [m], written
  int32_t* azp = nullptr;  // [m], written; null: symmetric
};

struct QuantizePerTensorProblem : QuantizeProblem {
  const float* scale = nullptr;  // one; positive and finite, which nobody checks
  const int32_t* azp = nullptr;  // one, or null: 0
};

// The largest finite float8_e4m3fn.
constexpr float kMaxFloat8 = 448;

// To float8_e4m3fn, with a scale for each row and block of K (or for each row):
//   scale = max(max |a| / 448, kMinScale)                     one division in fp32
//   q     = e4m3(clamp(a / scale, -448, 448))                 one division in fp32, to nearest even
// so the largest magnitude of a block becomes 448, and a is about scale * q. A NaN stays NaN and
// the sign of a zero is kept, as torch's cast does; nothing becomes NaN by being too large. A block
// that holds a NaN has scale NaN and only NaN in q; one that holds an infinity and no NaN has scale
// infinity, q = 0 for its numbers and NaN for its infinities: whatever is multiplied with either
// becomes NaN.
struct QuantizeFloat8Problem {
  int64_t m = 0, k = 0;
  ElementType element = ElementType::kFloat16;  // of a
  const void* a = nullptr;                      // row-major: (i, k) at i * a_stride + k
  int64_t a_stride = 0;                         // in elements
  int64_t block_k = 0;   // elements of K that share a scale; 0: all, and one scale where K = 0 too
  uint8_t* q = nullptr;  // [m, k], contiguous
  float* scale = nullptr;  // [m, blocks()], contiguous; written

  int64_t blocks() const { return block_k == 0 ? 1 : (k + block_k - 1) / block_k; }
};

}  // namespace mixed_gemm
