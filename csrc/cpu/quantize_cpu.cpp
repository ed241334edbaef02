// Activations to int8, a row at a time while it is in cache: the formula of
// core/quantize_problem.h.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/call_shape.h"
#include "cpu/instruction_set.h"
#include "cpu/scaled_mm_cpu.h"

namespace mixed_gemm {
namespace cpu {
namespace {

void round_row(const float* row, int64_t k, float inverse, int32_t azp, int8_t* q) {
  // Clamped before the conversion, which would wrap; the bounds are exact in fp32 up to 2^24 and
  // reached by infinities as well.
  const auto low = static_cast<float>(-128 - int64_t{azp});
  const auto high = static_cast<float>(127 - int64_t{azp});
  for (int64_t j = 0; j < k; ++j) {
    float x = row[j] * inverse;
    x = std::isnan(x) ? 0.f : x;
    const float rounded = std::nearbyint(std::min(std::max(x, low), high));
    q[j] = static_cast<int8_t>(std::clamp<int64_t>(static_cast<int64_t>(rounded) + azp, -128, 127));
  }
}

struct RowScale {
  float scale;
  int32_t azp;
};

RowScale choose(const float* row, int64_t k, bool symmetric) {
  float low = 0, high = 0;
  bool nan = false;
  for (int64_t j = 0; j < k; ++j) {
    low = std::min(low, row[j]);
    high = std::max(high, row[j]);
    nan |= std::isnan(row[j]);
  }
  if (nan) return {std::nanf(""), 0};
  if (symmetric) return {std::max(std::max(-low, high) / 127, kMinScale), 0};
  const float scale = std::max(high / 255 - low / 255, kMinScale);
  if (!std::isfinite(scale)) return {scale, 0};
  const float zero = -128 - std::nearbyint(low * (1 / scale));
  return {scale, static_cast<int32_t>(std::min(std::max(zero, -128.f), 127.f))};
}

// Calls body(row index, the row in fp32, where its integers go).
template <typename Body>
void for_each_row(const QuantizeProblem& p, const ParallelFor& parallel_for, const Body& body) {
  const CpuKernels& kernels = active_kernels();
  const auto* a = static_cast<const char*>(p.a);
  parallel_for(0, p.m, CallShape::grain(8 * p.k), [&](int64_t begin, int64_t end) {
    AlignedBuffer row(p.k);
    for (int64_t i = begin; i < end; ++i) {
      const void* from = a + i * p.a_stride * element_bytes(p.element);
      kernels.to_float({p.element, from, 0}, 1, p.k, row.data(), 0);
      body(i, row.data(), p.q + i * p.k);
    }
  });
}

}  // namespace
}  // namespace cpu

void quantize_per_token_cpu(const QuantizePerTokenProblem& p, const ParallelFor& parallel_for) {
  cpu::for_each_row(p, parallel_for, [&](int64_t i, const float* row, int8_t* q) {
    const cpu::RowScale chosen = cpu::choose(row, p.k, p.azp == nullptr);
    p.scale[i] = chosen.scale;
    if (p.azp) p.azp[i] = chosen.azp;
    if (std::isfinite(chosen.scale)) {
      cpu::round_row(row, p.k, 1 / chosen.scale, chosen.azp, q);
    } else {
      std::fill(q, q + p.k, int8_t{0});
    }
  });
}

void quantize_per_tensor_cpu(const QuantizePerTensorProblem& p, const ParallelFor& parallel_for) {
  const float inverse = 1 / *p.scale;
  const int32_t azp = p.azp ? *p.azp : 0;
  cpu::for_each_row(p, parallel_for, [&](int64_t, const float* row, int8_t* q) {
    cpu::round_row(row, p.k, inverse, azp, q);
  });
}

}  // namespace mixed_gemm
