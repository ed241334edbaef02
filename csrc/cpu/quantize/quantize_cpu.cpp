// Activations to int8 and float8, a row at a time while it is in cache: the formulas of
// problem/quantize.h.
#include <algorithm>
#include <cmath>

#include "core/mutant.h"
#include "cpu/call_shape.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {
namespace {

struct RowScale {
  float scale;
  int32_t azp;
};

RowScale choose(const IntegerKernels::Range& range, bool symmetric) {
  if (range.nan) return {std::nanf(""), 0};
  const float low = range.low, high = range.high;
  if (symmetric) return {std::max(std::max(-low, high) / 127, kMinScale), 0};
  const float scale = std::max(high / 255 - low / 255, kMinScale);
  if (!std::isfinite(scale)) return {scale, 0};
  const float sign = MIXED_GEMM_MUTATED(AzpSign) ? -1 : 1;
  const float zero = -128 - sign * std::nearbyint(low * (1 / scale));
  return {scale, static_cast<int32_t>(std::min(std::max(zero, -128.f), 127.f))};
}

// Calls body(row index, the row in fp32, where its codes go).
template <typename Problem, typename Body>
void for_each_row(const CpuKernels& kernels, const Problem& p, const ParallelFor& parallel_for,
                  const Body& body) {
  const auto* a = static_cast<const char*>(p.a);
  const int64_t work = 4 * p.k;  // two conversions and a comparison or two
  parallel_for(0, p.m, CallShape::grain(work), [&](int64_t begin, int64_t end) {
    AlignedBuffer row(p.k);
    for (int64_t i = begin; i < end; ++i) {
      const void* from = a + i * p.a_stride * element_bytes(p.element);
      kernels.to_float({p.element, from, 0}, 1, p.k, row.data(), 0);
      body(i, row.data(), p.q + i * p.k);
    }
  });
}

}  // namespace

void quantize_per_token(const CpuKernels& kernels, const QuantizePerTokenProblem& p,
                        const ParallelFor& parallel_for) {
  for_each_row(kernels, p, parallel_for, [&](int64_t i, const float* row, int8_t* q) {
    const RowScale chosen = choose(kernels.int8->range(row, p.k), p.azp == nullptr);
    p.scale[i] = chosen.scale;
    if (p.azp) p.azp[i] = chosen.azp;
    if (MIXED_GEMM_MUTATED(RoundsHalfAway) && std::isfinite(chosen.scale)) {
      for (int64_t k = 0; k < p.k; ++k) {
        const float rounded =
            std::round(row[k] * (1 / chosen.scale)) + static_cast<float>(chosen.azp);
        q[k] = static_cast<int8_t>(std::clamp(rounded, -128.f, 127.f));
      }
    } else if (std::isfinite(chosen.scale)) {
      kernels.int8->round(row, p.k, 1 / chosen.scale, chosen.azp, q);
    } else {
      std::fill(q, q + p.k, int8_t{0});
    }
  });
}

void quantize_per_tensor(const CpuKernels& kernels, const QuantizePerTensorProblem& p,
                         const ParallelFor& parallel_for) {
  const float inverse = 1 / *p.scale;
  const int32_t azp = p.azp ? std::clamp(*p.azp, -kMaxAzp, kMaxAzp) : 0;
  for_each_row(kernels, p, parallel_for, [&](int64_t, const float* row, int8_t* q) {
    kernels.int8->round(row, p.k, inverse, azp, q);
  });
}

void quantize_float8(const CpuKernels& kernels, const QuantizeFloat8Problem& p,
                     const ParallelFor& parallel_for) {
  const int64_t blocks = p.blocks(), size = p.block_k == 0 ? p.k : p.block_k;
  for_each_row(kernels, p, parallel_for, [&](int64_t i, const float* row, uint8_t* q) {
    for (int64_t g = 0; g < blocks; ++g) {
      const int64_t k = g * size, count = std::min(size, p.k - k);
      const float chosen = kernels.float8->largest(row + k, count) / kMaxFloat8;
      const float scale = chosen < kMinScale ? kMinScale : chosen;  // a NaN stays
      p.scale[i * blocks + g] = scale;
      kernels.float8->round(row + k, count, scale, q + k);
    }
  });
}

}  // namespace mixed_gemm::cpu
