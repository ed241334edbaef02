// Rounds activations to int8 and float8, a row at a time while it is in cache, by the formulas of
// problem/quantize.h.
#include <algorithm>

#include "cpu/call_shape.h"
#include "cpu/quantize/token_row.h"
#include "cpu/scaled_mm/paths.h"

namespace mixed_gemm::cpu {
namespace {

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
    const TokenScale chosen = quantize_token(kernels, row, p.k, p.azp == nullptr, q);
    p.scale[i] = chosen.scale;
    if (p.azp) p.azp[i] = chosen.azp;
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
