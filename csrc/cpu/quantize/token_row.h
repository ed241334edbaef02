// Rounds one row of activations to int8 with a scale of its own, as problem/quantize.h says.
#pragma once
#include <algorithm>
#include <cmath>

#include "cpu/cpu_kernels.h"
#include "problem/quantize.h"

namespace mixed_gemm::cpu {

struct TokenScale {
  float scale;
  int32_t azp;  // 0 when symmetric
};

inline TokenScale token_scale(const IntegerKernels::Range& range, bool symmetric) {
  if (range.nan) return {std::nanf(""), 0};
  const float low = range.low, high = range.high, largest = std::max(-low, high);
  if (symmetric) return {std::max(largest / 127, kMinScale), 0};
  const float own = (high * 0.5f - low * 0.5f) / 127.5f;  // NaN where both are one infinity
  const float least = std::max(largest / kMaxTokenSteps, kMinScale);
  const float scale = own > least ? own : least;
  if (!std::isfinite(scale)) return {scale, 0};
  return {scale, static_cast<int32_t>(-128 - std::nearbyint(low * (1 / scale)))};
}

// Rounds k elements in fp32; writes q [k].
inline TokenScale quantize_token(const CpuKernels& kernels, const float* row, int64_t k,
                                 bool symmetric, int8_t* q) {
  const TokenScale chosen = token_scale(kernels.int8->range(row, k), symmetric);
  if (std::isfinite(chosen.scale)) {
    kernels.int8->round(row, k, 1 / chosen.scale, chosen.azp, q);
  } else {
    std::fill(q, q + k, int8_t{0});
  }
  return chosen;
}

}  // namespace mixed_gemm::cpu
