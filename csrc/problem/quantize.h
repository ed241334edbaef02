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
// The most steps of its scale that a row with a zero point may be away from 0.
constexpr int32_t kMaxTokenSteps = 1 << 21;

// q = clamp(round(a * (1 / scale)) + azp, -128, 127), so a is about scale * (q - azp). All in fp32:
// one division for 1 / scale, one product, rounding to nearest even, then an integer addition. A
// NaN in `a` counts as 0 and infinities saturate. An azp beyond +-2^22 counts as that, so that all
// of this is exact in fp32 and int32.
//
// Per token, each row chooses its own scale and azp:
//   symmetric   scale = max(max |a| / 127, kMinScale), azp = 0, q in -127..127
//   with azp    low = min a, high = max a, both 0 where K = 0,
//               scale = max((high / 2 - low / 2) / 127.5, max |a| / kMaxTokenSteps, kMinScale)
//               azp = -128 - round(low * (1 / scale))
// A row that holds a NaN has scale NaN, one that holds an infinity has scale infinity; both have
// q = 0 and azp = 0, so whatever is multiplied with it becomes NaN, as it does in floating point.
//
// The range with azp is the row's own and need not hold 0, since azp is an int32; the halves are
// there because high - low may overflow. kMaxTokenSteps limits azp where a row lies more than 8224
// times its range away from 0, as constant rows do. In steps of scale, with S = kMaxTokenSteps:
//   - The two roundings of a * (1 / scale) move it by at most e = 2^-23 * max |a| / scale, which is
//     at most 2^-23 * S = 1/4. So round(a * (1 / scale)) is at most S in magnitude, |azp| at most
//     S + 128 < kMaxAzp, and every number on the way is exact in fp32 and int32. A product less
//     azp times the sum of K weights is below 2^31 + 2^22 * 2^24, which int64 holds.
//   - An element that is not clamped is rounded by at most 1/2, so scale * (q - azp) is within
//     1/2 + e of it. The least element has q = -128, so only the upper end is clamped, to 127.
//     That end is at most 255 + 2^-14 above the least one (2^-14 for the rounded scale), which
//     itself is at most 1/2 + e above scale * (-128 - azp). Together, for every element,
//       |a - scale * (q - azp)| <= scale * (1/2 + e + 2^-14).
//   - A constant row has scale = |a| / S exactly and round(a * (1 / scale)) = +-S, so that
//     scale * (q - azp) is a again, for |a| >= 2^-105. Below that scale is kMinScale, as it is for
//     a row of zeros, which has azp = q = -128.
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

// Rounding to float8_e4m3fn, with a scale for each row and block of K (or for each row):
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
